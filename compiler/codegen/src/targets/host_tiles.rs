//! Tile registers of this machine: Linux lets a process use them once it has asked, and may refuse.

use super::Features;

/// LLVM's name for tile registers.
pub(super) const TILES: &str = "amx-tile";

/// The features without tiles where the system does not let this process use them.
pub(super) fn permitted(features: Vec<String>) -> Vec<String> {
    if !Features(&features).has(TILES) || ask() {
        return features;
    }
    let off = |feature: String| match feature.strip_prefix("+amx-") {
        Some(name) => format!("-amx-{name}"),
        None => feature,
    };
    features.into_iter().map(off).collect()
}

/// The processor by its tile registers, where it has some. LLVM goes by model numbers, and a virtual machine may show
/// that of another processor, whose caches and units are not those of the one below.
pub(super) fn processor(features: &[String]) -> Option<&'static str> {
    let features = Features(features);
    let generations = [("amx-fp16", "graniterapids"), (TILES, "sapphirerapids")];
    generations.into_iter().find(|(feature, _)| features.has(feature)).map(|found| found.1)
}

/// Asks for the registers; whether they may be used.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn ask() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: a plain system call without pointers; asking again is harmless.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn ask() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_go_by_their_tiles() {
        let of = |features: &[&str]| {
            let features: Vec<String> = features.iter().map(|name| (*name).to_owned()).collect();
            processor(&features)
        };
        assert_eq!(of(&["+avx512f", "-amx-tile"]), None);
        assert_eq!(of(&["+amx-tile", "+amx-bf16"]), Some("sapphirerapids"));
        assert_eq!(of(&["+amx-tile", "+amx-fp16"]), Some("graniterapids"));
    }
}
