//! Arguments and results of steps, as text.

use hone_tensor::{Axis, BlockId, BufferId, Intrinsic, Scope, VarId};
use hone_types::Id;
use std::fmt;

/// What a step made: a loop or a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handle {
    /// A loop.
    Loop(VarId),
    /// A block.
    Block(BlockId),
}

impl fmt::Display for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Handle::Loop(var) => write!(formatter, "{var}"),
            Handle::Block(block) => write!(formatter, "{block}"),
        }
    }
}

impl Handle {
    /// The handle of its text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // A block's prefix begins with that of a buffer, never with that of a loop.
        BlockId::parse(text).map(Handle::Block).or_else(|| VarId::parse(text).map(Handle::Loop))
    }
}

/// An argument of a step.
pub(crate) trait Argument: Sized {
    /// Whether it stands without its name in front.
    const POSITIONAL: bool;
    fn print(&self) -> String;
    fn parse(text: &str) -> Option<Self>;
}

fn parse_id<T: Id>(text: &str, prefix: &str) -> Option<T> {
    let digits = text.strip_prefix(prefix)?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse::<u32>().ok())?.map(|index| T::from_index(index as usize))
}

macro_rules! id_arguments {
    ($($type:ty => $prefix:literal),*) => {$(
        impl Argument for $type {
            const POSITIONAL: bool = true;
            fn print(&self) -> String {
                self.to_string()
            }
            fn parse(text: &str) -> Option<Self> {
                parse_id(text, $prefix)
            }
        }
    )*};
}

id_arguments!(VarId => "v", BufferId => "b", BlockId => "block");

impl Argument for usize {
    const POSITIONAL: bool = false;
    fn print(&self) -> String {
        self.to_string()
    }
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

const SCOPES: [(Scope, &str); 4] = [
    (Scope::Global, "global"),
    (Scope::Shared, "shared"),
    (Scope::Scratch, "scratch"),
    (Scope::Register, "register"),
];

impl Argument for Scope {
    const POSITIONAL: bool = false;
    fn print(&self) -> String {
        let found = SCOPES.iter().find(|(scope, _)| scope == self);
        found.map_or("?", |(_, name)| name).to_string()
    }
    fn parse(text: &str) -> Option<Self> {
        SCOPES.iter().find(|(_, name)| *name == text).map(|(scope, _)| *scope)
    }
}

impl Argument for Intrinsic {
    const POSITIONAL: bool = false;
    fn print(&self) -> String {
        self.name().to_string()
    }
    fn parse(text: &str) -> Option<Self> {
        Intrinsic::named(text)
    }
}

impl Argument for Axis {
    const POSITIONAL: bool = true;
    fn print(&self) -> String {
        self.name().to_string()
    }
    fn parse(text: &str) -> Option<Self> {
        Axis::ALL.iter().find(|(_, name)| *name == text).map(|(own, _)| *own)
    }
}

impl Argument for Vec<VarId> {
    const POSITIONAL: bool = true;
    fn print(&self) -> String {
        let texts: Vec<String> = self.iter().map(VarId::to_string).collect();
        format!("[{}]", texts.join(", "))
    }
    fn parse(text: &str) -> Option<Self> {
        let inside = text.strip_prefix('[')?.strip_suffix(']')?.trim();
        if inside.is_empty() {
            return Some(vec![]);
        }
        inside.split(',').map(|own| VarId::parse(own.trim())).collect()
    }
}

/// What a step gives back, as handles.
pub(crate) trait Results {
    fn handles(&self) -> Vec<Handle>;
}

impl Results for () {
    fn handles(&self) -> Vec<Handle> {
        vec![]
    }
}

impl Results for VarId {
    fn handles(&self) -> Vec<Handle> {
        vec![Handle::Loop(*self)]
    }
}

impl Results for Vec<VarId> {
    fn handles(&self) -> Vec<Handle> {
        self.iter().copied().map(Handle::Loop).collect()
    }
}

impl Results for BlockId {
    fn handles(&self) -> Vec<Handle> {
        vec![Handle::Block(*self)]
    }
}

impl<A: Results, B: Results> Results for (A, B) {
    fn handles(&self) -> Vec<Handle> {
        [self.0.handles(), self.1.handles()].concat()
    }
}
