//! The first elements of lines in order, and their indices.
//!
//! Every element has a key, an integer that is ordered as the elements are; the smallest keys are wanted. Key and index
//! packed into one integer make equal elements differ by their index, so that nothing here needs a stable sort. Few of
//! a line are collected in one pass: whatever is below the last bound goes into a buffer with room for about twice
//! as many as are wanted, which is cut down to these when it is full (a selection by Hoare's method), and the
//! largest of them is the next bound. Many are found by sorting the line by digits of the keys, the lowest
//! first (Knuth, The Art of Computer Programming, volume 3, 5.2.5).

use crate::DataType;
use crate::host::{Around, HostValue};

/// What is wanted of each line.
pub(crate) struct Wanted {
    /// Elements before, along and after the axis.
    pub(crate) around: Around,
    /// How many, at most the extent of the axis.
    pub(crate) count: usize,
    /// Whether the largest, else the smallest.
    pub(crate) largest: bool,
}

/// The loops that look at every element, for elements of 32 bits. A library that is compiled for its size has none in
/// vectors; a runtime may bring some.
#[derive(Clone, Copy, Debug)]
pub struct KeyLoops {
    /// Puts the key of each `f32` (its bytes in this machine's order) in its place; in the opposite order where told so.
    pub of_floats: fn(elements: &[[u8; 4]], flipped: bool, keys: &mut [i32]),
    /// Of up to 64 keys which are below a bound, one bit each, the first in the lowest.
    pub below: fn(keys: &[i32], bound: i32) -> u64,
}

impl KeyLoops {
    /// As this library is compiled.
    pub const PLAIN: Self =
        Self { of_floats: keys_of_floats, below: |keys, bound| below(keys, bound) };
}

fn keys_of_floats(elements: &[[u8; 4]], flipped: bool, keys: &mut [i32]) {
    for (element, key) in elements.iter().zip(keys) {
        *key = key_of_float(i32::from_ne_bytes(*element), INFINITY).turned(flipped);
    }
}

fn below<K: Ord>(keys: &[K], bound: K) -> u64 {
    let bits = keys.iter().take(64).enumerate();
    bits.fold(0, |all, (place, key)| all | u64::from(*key < bound) << place)
}

/// Bits of infinity.
const INFINITY: i32 = 0x7f80_0000;

/// Longest lines: an index takes 32 bits beside a key of 32 bits.
pub(crate) const LONGEST: u64 = u32::MAX as u64;

/// The elements and their indices. No number is larger than every number, as in NumPy.
pub(crate) fn top_k(data: &HostValue<'_>, wanted: &Wanted, loops: &KeyLoops) -> Vec<Vec<u8>> {
    use DataType as D;
    if data.of.dtype == D::F32 && wanted.around.2 == 1 {
        let (elements, _) = data.bytes.as_chunks::<4>();
        let extent = wanted.around.1 as usize;
        let load = |line: usize, first: usize, keys: &mut [i32]| {
            let elements = elements.get(line * extent + first..).unwrap_or_default();
            (loops.of_floats)(elements, wanted.largest, keys);
        };
        return found(elements, wanted, loops, &load);
    }
    let wanted = &(wanted, loops);
    match data.of.dtype {
        D::F32 => lines(data.bytes, wanted, |own| key_of_float(i32::from_ne_bytes(own), INFINITY)),
        D::F64 => lines(data.bytes, wanted, |own| key_of_wide_float(i64::from_ne_bytes(own))),
        D::F16 => lines(data.bytes, wanted, |own| {
            key_of_float(i32::from(i16::from_ne_bytes(own)) << 16, 0x7c00_0000)
        }),
        D::Bf16 => lines(data.bytes, wanted, |own| {
            key_of_float(i32::from(i16::from_ne_bytes(own)) << 16, INFINITY)
        }),
        D::I8 => lines(data.bytes, wanted, |own| i32::from(i8::from_ne_bytes(own))),
        D::I16 => lines(data.bytes, wanted, |own| i32::from(i16::from_ne_bytes(own))),
        D::I32 => lines(data.bytes, wanted, i32::from_ne_bytes),
        D::I64 => lines(data.bytes, wanted, i64::from_ne_bytes),
        D::U8 | D::Bool => lines(data.bytes, wanted, |own| i32::from(u8::from_ne_bytes(own))),
        D::U16 => lines(data.bytes, wanted, |own| i32::from(u16::from_ne_bytes(own))),
        D::U32 => lines(data.bytes, wanted, |own| i32::from_ne_bytes(own) ^ i32::MIN),
        D::U64 => lines(data.bytes, wanted, |own| i64::from_ne_bytes(own) ^ i64::MIN),
    }
}

/// The key of a float whose bits are the upper ones of `bits`: its magnitude with its sign, so that both zeros are
/// equal. `infinity` has the bits of infinity.
#[inline(always)]
fn key_of_float(bits: i32, infinity: i32) -> i32 {
    let (magnitude, sign) = (bits & i32::MAX, bits >> 31);
    if magnitude > infinity { i32::MAX } else { (magnitude ^ sign) - sign }
}

/// As [`key_of_float`], of 64 bits.
#[inline(always)]
fn key_of_wide_float(bits: i64) -> i64 {
    let (magnitude, sign) = (bits & i64::MAX, bits >> 63);
    if magnitude > 0x7ff0_0000_0000_0000 { i64::MAX } else { (magnitude ^ sign) - sign }
}

/// An order-preserving integer, and how it is packed with an index.
trait Key: Copy + Ord + Default {
    /// Key and index, ordered by the key first.
    type Packed: Copy + Ord + Default;
    /// Bytes of a key.
    const BYTES: usize;

    /// See [`KeyLoops::below`].
    fn below(keys: &[Self], bound: Self, loops: &KeyLoops) -> u64;
    /// The key in the opposite order where `flipped`.
    fn turned(self, flipped: bool) -> Self;
    fn pack(self, index: usize) -> Self::Packed;
    fn key(packed: Self::Packed) -> Self;
    fn index(packed: Self::Packed) -> usize;
    /// Byte `number` of the key, counted from the lowest.
    fn digit(packed: Self::Packed, number: usize) -> usize;
}

macro_rules! key {
    ($key:ident, $unsigned:ident, $packed:ident, $below:expr) => {
        impl Key for $key {
            type Packed = $packed;
            const BYTES: usize = size_of::<$key>();

            fn below(keys: &[Self], bound: Self, loops: &KeyLoops) -> u64 {
                let below: fn(&KeyLoops, &[Self], Self) -> u64 = $below;
                below(loops, keys, bound)
            }
            #[inline(always)]
            fn turned(self, flipped: bool) -> Self {
                self ^ -$key::from(flipped)
            }
            #[inline(always)]
            fn pack(self, index: usize) -> $packed {
                let upper = $packed::from((self ^ $key::MIN) as $unsigned);
                (upper << $key::BITS) | index as $packed
            }
            #[inline(always)]
            fn key(packed: $packed) -> Self {
                (packed >> $key::BITS) as $key ^ $key::MIN
            }
            #[inline(always)]
            fn index(packed: $packed) -> usize {
                (packed as $unsigned) as usize
            }
            #[inline(always)]
            fn digit(packed: $packed, number: usize) -> usize {
                ((packed >> ($key::BITS as usize + 8 * number)) & 255) as usize
            }
        }
    };
}
key!(i32, u32, u64, |loops, keys, bound| (loops.below)(keys, bound));
key!(i64, u64, u128, |_, keys, bound| below(keys, bound));

/// Elements whose keys are computed at once; they stay in the first cache.
const BLOCK: usize = 2048;

/// Elements that are compared with the bound at once: one bit each.
const PART: usize = 64;

/// Elements for each one wanted, below which whole lines are sorted.
const SPARSE: usize = 6;

/// Elements up to which comparing sorts faster than counting digits.
const SHORT: usize = 192;

/// Searches every line. `key` gives the key of an element of `SIZE` bytes.
fn lines<const SIZE: usize, K: Key>(
    bytes: &[u8],
    (wanted, loops): &(&Wanted, &KeyLoops),
    key: impl Fn([u8; SIZE]) -> K,
) -> Vec<Vec<u8>> {
    let (_, extent, inner) = wanted.around;
    let (extent, inner) = (extent as usize, inner as usize);
    let (elements, _) = bytes.as_chunks::<SIZE>();
    let largest = wanted.largest;
    let load = |line: usize, first: usize, keys: &mut [K]| {
        let start = line / inner * extent * inner + line % inner + first * inner;
        let elements = elements.get(start..).unwrap_or_default();
        match inner {
            1 => {
                keys.iter_mut().zip(elements).for_each(|(to, own)| *to = key(*own).turned(largest))
            }
            _ => {
                let own = elements.iter().step_by(inner);
                keys.iter_mut().zip(own).for_each(|(to, own)| *to = key(*own).turned(largest));
            }
        }
    };
    found(elements, wanted, loops, &load)
}

/// The elements and their indices. `load` gives keys of a line, from an index on.
fn found<const SIZE: usize, K: Key>(
    elements: &[[u8; SIZE]],
    wanted: &Wanted,
    loops: &KeyLoops,
    load: &dyn Fn(usize, usize, &mut [K]),
) -> Vec<Vec<u8>> {
    // The product of all extents fits, that of some of them need not where another is 0.
    if elements.is_empty() || wanted.count == 0 {
        return vec![Vec::new(), Vec::new()];
    }
    let indices = indices(wanted, loops, load);
    vec![
        values(elements, wanted, &indices),
        indices.iter().flat_map(|own| own.to_ne_bytes()).collect(),
    ]
}

/// Indices of the elements of every line. `load` gives keys of a line, from an index on.
fn indices<K: Key>(
    wanted: &Wanted,
    loops: &KeyLoops,
    load: &dyn Fn(usize, usize, &mut [K]),
) -> Vec<i64> {
    let (outer, extent, inner) = wanted.around;
    let (outer, extent, inner) = (outer as usize, extent as usize, inner as usize);
    let mut indices = vec![0; outer * wanted.count * inner];
    let mut search = Search::<K>::default();
    for line in 0..outer * inner {
        let load = |first: usize, keys: &mut [K]| load(line, first, keys);
        let found = match wanted.count < extent / SPARSE {
            true => search.collect(extent, wanted.count, loops, &load),
            false => search.sort(extent, &load),
        };
        let to = line / inner * wanted.count * inner + line % inner;
        let to = indices.iter_mut().skip(to).step_by(inner);
        to.zip(found.iter().take(wanted.count)).for_each(|(to, own)| *to = K::index(*own) as i64);
    }
    indices
}

/// The elements at some indices of every line.
fn values<const SIZE: usize>(elements: &[[u8; SIZE]], wanted: &Wanted, indices: &[i64]) -> Vec<u8> {
    let (_, extent, inner) = wanted.around;
    let (extent, inner) = (extent as usize, inner as usize);
    let mut values = Vec::with_capacity(indices.len() * SIZE);
    let lines = indices.chunks_exact(wanted.count * inner);
    for (slice, indices) in lines.enumerate() {
        let elements = &elements[slice * extent * inner..][..extent * inner];
        for (place, index) in indices.iter().enumerate() {
            values.extend_from_slice(&elements[*index as usize * inner + place % inner]);
        }
    }
    values
}

/// Buffers of a search, used for one line after another.
#[derive(Default)]
struct Search<K: Key> {
    keys: Vec<K>,
    packed: Vec<K::Packed>,
    other: Vec<K::Packed>,
}

impl<K: Key> Search<K> {
    /// The `count` smallest in order. `load` gives the keys from an index on.
    fn collect(
        &mut self,
        extent: usize,
        count: usize,
        loops: &KeyLoops,
        load: &dyn Fn(usize, &mut [K]),
    ) -> &[K::Packed] {
        let room = 2 * count + 2 * PART;
        self.keys.resize(BLOCK, K::default());
        self.packed.resize(room, Default::default());
        let (keys, packed) = (&mut self.keys[..], &mut self.packed[..room]);
        // None before as many were found as are wanted.
        let mut bound = None;
        let mut found = 0;
        for first in (0..extent).step_by(BLOCK) {
            let block = &mut keys[..BLOCK.min(extent - first)];
            load(first, block);
            for (part, own) in block.chunks(PART).enumerate() {
                let mut passing = match bound {
                    None => u64::MAX,
                    Some(bound) => K::below(own, bound, loops),
                };
                if passing == 0 {
                    continue;
                }
                if found + PART > room {
                    packed[..found].select_nth_unstable(count - 1);
                    found = count;
                    let last = K::key(packed[count - 1]);
                    bound = Some(last);
                    passing = K::below(own, last, loops);
                }
                passing &= u64::MAX >> (PART - own.len());
                while passing != 0 {
                    let place = passing.trailing_zeros() as usize;
                    packed[found] = own[place].pack(first + part * PART + place);
                    found += 1;
                    passing &= passing - 1;
                }
            }
        }
        let packed = &mut packed[..found];
        if found > count {
            packed.select_nth_unstable(count - 1);
        }
        let packed = &mut packed[..count.min(found)];
        packed.sort_unstable();
        packed
    }

    /// All in order. `load` gives the keys from an index on.
    fn sort(&mut self, extent: usize, load: &dyn Fn(usize, &mut [K])) -> &[K::Packed] {
        self.keys.resize(BLOCK, K::default());
        self.packed.resize(extent, Default::default());
        for (block, packed) in self.packed.chunks_mut(BLOCK).enumerate() {
            let keys = &mut self.keys[..packed.len()];
            load(block * BLOCK, keys);
            for (place, (key, packed)) in keys.iter().zip(packed).enumerate() {
                *packed = key.pack(block * BLOCK + place);
            }
        }
        if extent <= SHORT {
            self.packed.sort_unstable();
            return &self.packed;
        }
        self.other.resize(extent, Default::default());
        let mut counts = vec![[0_usize; 256]; K::BYTES];
        for packed in &self.packed {
            for (number, counts) in counts.iter_mut().enumerate() {
                counts[K::digit(*packed, number)] += 1;
            }
        }
        for (number, counts) in counts.iter_mut().enumerate() {
            if counts[K::digit(self.packed[0], number)] == extent {
                continue;
            }
            let mut first = 0;
            for count in counts.iter_mut() {
                (*count, first) = (first, first + *count);
            }
            for packed in &self.packed {
                let next = &mut counts[K::digit(*packed, number)];
                self.other[*next] = *packed;
                *next += 1;
            }
            std::mem::swap(&mut self.packed, &mut self.other);
        }
        &self.packed
    }
}

#[cfg(test)]
#[path = "host_top_k_tests.rs"]
mod tests;
