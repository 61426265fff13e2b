//! The entries of a TIFF file's first directory, looked at before the decoder reads them: it reserves memory for as many
//! values as an entry says that it has (TIFF 6.0, section 2, and BigTIFF).

use crate::Size;

/// Most values of an entry that a small image may have.
const FEW: u64 = 4096;

/// The tag from which on entries say nothing that is read.
const OTHER_TAGS: u16 = 700;

/// The type of texts.
const TEXT: u16 = 2;

/// Bytes in the file's order.
struct Reader<'a> {
    bytes: &'a [u8],
    is_little: bool,
}

impl Reader<'_> {
    fn number<const N: usize>(&self, at: u64) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let bytes = self.bytes.get(at..)?.first_chunk::<N>()?.iter().map(|byte| u64::from(*byte));
        let joined = |all: u64, byte| all << 8 | byte;
        Some(if self.is_little { bytes.rev().fold(0, joined) } else { bytes.fold(0, joined) })
    }
}

/// Whether the values of each entry lie in the file, and no entry has more than an image of the size may need. `None` where
/// there is no directory.
pub(crate) fn are_sound(bytes: &[u8], size: Size) -> Option<bool> {
    let reader = Reader { bytes, is_little: bytes.starts_with(b"II") };
    let is_big = reader.number::<2>(2)? == 43;
    let (directory, entries, head, step) = match is_big {
        false => {
            let at = reader.number::<4>(4)?;
            (at, reader.number::<2>(at)?, 2, 12)
        }
        true => {
            let at = reader.number::<8>(8)?;
            (at, reader.number::<8>(at)?, 8, 20)
        }
    };
    let most = FEW.max(4u64.saturating_mul(size.pixels()? as u64));
    for place in 0..entries {
        let at = place.checked_mul(step)?.checked_add(directory)?.checked_add(head)?;
        let tag = reader.number::<2>(at)? as u16;
        let kind = reader.number::<2>(at.checked_add(2)?)? as u16;
        let count_at = at.checked_add(4)?;
        let count =
            if is_big { reader.number::<8>(count_at)? } else { reader.number::<4>(count_at)? };
        let is_counted = tag < OTHER_TAGS && kind != TEXT;
        let all = count.checked_mul(bytes_of(kind));
        if all.is_none_or(|all| all > bytes.len() as u64) || (is_counted && count > most) {
            return Some(false);
        }
    }
    Some(true)
}

/// Bytes of a value of a type; of one that is not known at least one.
fn bytes_of(kind: u16) -> u64 {
    match kind {
        3 | 8 => 2,
        4 | 9 | 11 | 13 => 4,
        5 | 10 | 12 | 16..=18 => 8,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { height: 2, width: 2 };

    fn classic(tag: u16, kind: u16, count: u32, length: usize) -> Vec<u8> {
        let mut file = b"II*\0\x08\0\0\0\x01\0".to_vec();
        file.extend(tag.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(count.to_le_bytes());
        file.resize(length, 0);
        file
    }

    fn big(count: u64, length: usize) -> Vec<u8> {
        let mut file = b"MM\0+\0\x08\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\x01".to_vec();
        file.extend([1, 2, 0, 3]);
        file.extend(count.to_be_bytes());
        file.resize(length, 0);
        file
    }

    #[test]
    fn values_lie_in_the_file_and_are_no_more_than_an_image_needs() {
        for (tag, kind, count, sound) in [
            (258, 3, 3, true),
            (258, 3, 5001, false),
            (258, 3, u32::MAX, false),
            (258, 1, 4096, true),
            (258, 1, 4097, false),
            // Texts and profiles are as long as they are.
            (270, TEXT, 9000, true),
            (34675, 7, 9000, true),
            (34675, 7, 10_001, false),
            (34675, 12, 2000, false),
        ] {
            let found = are_sound(&classic(tag, kind, count, 10_000), SIZE);
            assert_eq!(found, Some(sound), "{tag} {kind} {count}");
        }
        assert_eq!(are_sound(&big(3, 100), SIZE), Some(true));
        assert_eq!(are_sound(&big(100, 100), SIZE), Some(false));
        assert_eq!(are_sound(&big(1 << 63, 100), SIZE), Some(false));
    }

    #[test]
    fn directories_beyond_the_file_are_none() {
        assert_eq!(are_sound(b"II*\0", SIZE), None);
        assert_eq!(are_sound(&classic(258, 3, 1, 20)[..17], SIZE), None);
        assert_eq!(are_sound(b"II*\0\xff\xff\xff\xff\0\0\0\0\0\0\0\0", SIZE), None);
    }
}
