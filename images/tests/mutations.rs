//! Damaged images: whatever the bytes are, decoding ends with pixels or an error, in bounded time and memory.
//!
//! The mutations are seeded, so that a run is repeated by its numbers. One test alone, since it counts all memory of the
//! process.
#![allow(clippy::unwrap_used)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::{Case, SIZE, cases};
use hone_images::{DecodeError, ImageFormat, PixelFormat, decode, memory_limit};

/// Mutations of each format.
const MUTATIONS: usize = 3_000;

/// More than any of them takes, in a debug build on a busy machine.
const LONGEST: Duration = Duration::from_secs(20);

/// The system's memory, counted.
struct Counted;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(held, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Whether bytes are being decoded: what panics then is told by an error.
static DECODING: AtomicBool = AtomicBool::new(false);

#[global_allocator]
static MEMORY: Counted = Counted;

/// Numbers by Steele's SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// A place in bytes; in every second call one of the first, where sizes stand.
fn place(bytes: &[u8], random: &mut Random) -> usize {
    let end = if random.below(2) == 0 { bytes.len().min(80) } else { bytes.len() };
    random.below(end)
}

fn store(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes.iter_mut().skip(at).zip(value).for_each(|(own, value)| *own = *value);
}

/// One change.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    if bytes.is_empty() {
        return;
    }
    const NUMBERS: [u32; 8] = [0, 1, 2, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 0x0001_0000];
    let at = place(bytes, random);
    match random.below(8) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next() as u8,
        2 => store(bytes, at, &NUMBERS[random.below(8)].to_be_bytes()[random.below(4)..]),
        3 => store(bytes, at, &NUMBERS[random.below(8)].to_le_bytes()),
        4 => bytes.truncate(at),
        5 => {
            let length = random.below(bytes.len() - at).min(200);
            bytes.drain(at..at + length);
        }
        6 => {
            let length = random.below(bytes.len() - at).min(200);
            let copied = bytes[at..at + length].to_vec();
            let to = place(bytes, random);
            bytes.splice(to..to, copied);
        }
        _ => {
            let from = random.below(other.len());
            let length = random.below(other.len() - from).min(64);
            store(bytes, at, &other[from..from + length]);
        }
    }
}

/// Makes the checksums of a PNG image's chunks right, so that what was changed is looked at.
fn repair(bytes: &mut [u8]) {
    if ImageFormat::of(bytes) != Some(ImageFormat::Png) {
        return;
    }
    let mut begin = 8;
    while let Some(head) = bytes.get(begin..begin + 4) {
        let length = u32::from_be_bytes(head.try_into().unwrap()) as usize;
        let end = begin.saturating_add(8).saturating_add(length);
        let Some(chunk) = bytes.get(begin + 4..end) else { return };
        let sum = crc(chunk).to_be_bytes();
        store(bytes, end, &sum);
        begin = end + 4;
    }
}

/// The cyclic redundancy check of PNG, annex D of its specification.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        let shift = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        (0..8).fold(crc ^ u32::from(*byte), shift)
    })
}

/// How the decoding of some bytes ended, and what it took.
#[derive(Default)]
struct Seen {
    decoded: usize,
    refused: usize,
    panicked: usize,
    most_bytes: usize,
    longest: Duration,
}

impl Seen {
    fn decode(&mut self, bytes: &[u8], name: &str) {
        let mut pixels = vec![0; SIZE.height * SIZE.width * 3];
        let before = HELD.load(Relaxed);
        PEAK.store(before, Relaxed);
        let start = Instant::now();
        DECODING.store(true, Relaxed);
        let done = decode(bytes, PixelFormat::Rgb, SIZE, &mut pixels);
        DECODING.store(false, Relaxed);
        let (took, reserved) = (start.elapsed(), PEAK.load(Relaxed).saturating_sub(before));
        match done {
            Ok(()) => self.decoded += 1,
            Err(DecodeError::Panic { .. }) => self.panicked += 1,
            Err(_) => self.refused += 1,
        }
        assert!(took < LONGEST, "{name}: {took:?}");
        assert!(reserved as u64 <= memory_limit(SIZE), "{name}: {reserved} bytes");
        self.most_bytes = self.most_bytes.max(reserved);
        self.longest = self.longest.max(took);
    }
}

#[test]
fn damaged_images_are_decoded_or_refused() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !DECODING.load(Relaxed) {
            print(panic);
        }
    }));
    let mut formats: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    for case in cases() {
        let format = ImageFormat::of(&case.bytes).unwrap().to_string();
        formats.entry(format).or_default().push(case);
    }
    assert_eq!(formats.len(), 7);
    for (format, cases) in &formats {
        let mut seen = Seen::default();
        for seed in 0..MUTATIONS {
            let mut random = Random(seed as u64);
            let (case, other) = (&cases[seed % cases.len()], random.below(cases.len()));
            let mut bytes = case.bytes.clone();
            for _ in 0..=random.below(4) {
                mutate(&mut bytes, &cases[other].bytes, &mut random);
            }
            if seed % 2 == 0 {
                repair(&mut bytes);
            }
            seen.decode(&bytes, &format!("{} with seed {seed}", case.name));
        }
        let Seen { decoded, refused, panicked, most_bytes, longest } = seen;
        println!(
            "{format}: {decoded} decoded, {refused} refused, {panicked} panics caught; \
             at most {most_bytes} bytes and {longest:?}"
        );
        assert!(decoded > 0 && refused > 0, "{format}");
    }
}
