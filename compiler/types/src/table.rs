//! Typed handles over dense tables.
//!
//! A handle is its own type over a small integer, and prints as in the text form. Entries are never
//! removed, so a handle stays valid for the life of its table.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A handle of a [`Table`]; made by [`define_id!`](crate::define_id).
pub trait Id: Copy + Eq + Debug {
    /// The handle of entry `index`.
    fn from_index(index: usize) -> Self;
    /// The entry's place in its table.
    fn index(self) -> usize;
}

/// Defines a handle type that prints as its prefix and number: `define_id!(/// doc
/// ValueId, "%")` prints `%3`.
#[macro_export]
macro_rules! define_id {
    ($(#[$meta:meta])* $name:ident, $prefix:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u32);

        impl $crate::Id for $name {
            fn from_index(index: usize) -> Self {
                Self(index as u32)
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, concat!($prefix, "{}"), self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, formatter)
            }
        }
    };
}

/// A dense table whose entries are found by typed handle, in order of creation.
#[derive(Clone, Debug, PartialEq)]
pub struct Table<I, T> {
    entries: Vec<T>,
    id: PhantomData<I>,
}

impl<I: Id, T> Table<I, T> {
    /// An empty table.
    pub fn new() -> Self {
        Self { entries: Vec::new(), id: PhantomData }
    }

    /// Adds an entry and returns its handle.
    pub fn push(&mut self, entry: T) -> I {
        self.entries.push(entry);
        I::from_index(self.entries.len() - 1)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry, or `None` where the handle is of another table.
    pub fn get(&self, id: I) -> Option<&T> {
        self.entries.get(id.index())
    }

    /// Handles and entries in order of creation.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (I, &T)> {
        self.entries.iter().enumerate().map(|(index, entry)| (I::from_index(index), entry))
    }

    /// Handles and entries, for change, in order of creation.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (I, &mut T)> {
        self.entries.iter_mut().enumerate().map(|(index, entry)| (I::from_index(index), entry))
    }

    /// Handles in order of creation.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + use<I, T> {
        (0..self.entries.len()).map(I::from_index)
    }
}

impl<I: Id, T> Default for Table<I, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: Id, T> Index<I> for Table<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.entries[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for Table<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.entries[id.index()]
    }
}
