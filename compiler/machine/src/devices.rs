//! Devices of many lanes.

/// Lanes that execute together, at least: a warp of NVIDIA's; a wavefront of AMD's has 32 or 64.
pub const WARP_LANES: usize = 32;

/// Alignment in bytes of buffers that are parts of one allocation: the coarsest `CL_DEVICE_MEM_BASE_ADDR_ALIGN` of
/// current drivers, NVIDIA's 4,096 bits.
pub const DEVICE_BUFFER_ALIGNMENT: u64 = 512;

/// Multiprocessors of a device of NVIDIA's, each of which computes blocks of its own: those of an A100 (NVIDIA A100 Tensor Core
/// GPU Architecture, 2020). Assumed of every device where tiles of products are chosen: which tiles a product has follows
/// from it.
pub const MULTIPROCESSORS: usize = 108;

/// Cycles in which one of a multiprocessor's four tensor cores multiplies 16 x 16 by 16 x 8 numbers of 16 bits: 256
/// multiply-adds each, as an A100's (same source).
pub const PRODUCT_CYCLES: usize = 8;

/// The same of `wgmma`, by which a tensor core of an H100 does twice as many (NVIDIA H100 Tensor Core GPU Architecture,
/// 2022: 4,096 operations of a multiprocessor in a cycle, which are 512 multiply-adds of each of four).
pub const WARPGROUP_PRODUCT_CYCLES: usize = 4;

/// Cycles of a round of products but for the products: waiting, addresses, reads of matrices. Assumed, measured nowhere.
pub const ROUND_CYCLES: usize = 100;

/// A device that stands for its architecture where time is estimated and not measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// The architecture by NVIDIA's name for it, such as `sm_80`.
    pub architecture: &'static str,
    /// The device whose figures these are.
    pub name: &'static str,
    /// Multiprocessors.
    pub multiprocessors: usize,
    /// Cycles of a multiprocessor in a nanosecond.
    pub cycles_per_ns: f64,
    /// Multiply-adds of `f32` that a multiprocessor starts in a cycle.
    pub fma_per_cycle: usize,
    /// Multiply-adds of numbers of 16 bits, summed in `f32`, that the tensor cores of a multiprocessor start in a cycle by
    /// `mma.sync`.
    pub products_per_cycle: usize,
    /// The same by `wgmma`, where the device has it.
    pub warpgroup_products_per_cycle: usize,
    /// Bytes in a nanosecond between the device's memory and its processors.
    pub memory_bytes_per_ns: f64,
}

impl Device {
    /// The device that stands for an architecture.
    pub fn of_architecture(name: &str) -> Option<&'static Self> {
        DEVICES.iter().find(|device| device.architecture == name)
    }
}

/// Devices by architecture, of each the one that is most common in servers. Sources: NVIDIA Turing GPU Architecture (2018)
/// and the data sheet of the T4; NVIDIA A100 Tensor Core GPU Architecture (2020), 40 GB; NVIDIA Ampere GA102 GPU
/// Architecture (2021) and the data sheet of the A10; NVIDIA Ada GPU Architecture (2023) and the data sheet of the L4; NVIDIA
/// H100 Tensor Core GPU Architecture (2022), SXM5. Clocks are those at which the peaks of these sources are reached. Of
/// an H100's 2,048 products in a cycle half are counted for `mma.sync`: the others are reached by `wgmma` alone (Luo et al.,
/// Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking, 2024, measure 63 % for `mma.sync`).
const DEVICES: [Device; 5] = [
    device(["sm_75", "T4"], [40, 64, 512], [1.59, 320.0]),
    device(
        ["sm_80", "A100"],
        [MULTIPROCESSORS, 64, 4 * 16 * 16 * 8 / PRODUCT_CYCLES],
        [1.41, 1555.0],
    ),
    device(["sm_86", "A10"], [72, 128, 512], [1.695, 600.0]),
    device(["sm_89", "L4"], [58, 128, 512], [2.04, 300.0]),
    Device {
        warpgroup_products_per_cycle: 4 * 16 * 16 * 8 / WARPGROUP_PRODUCT_CYCLES,
        ..device(["sm_90a", "H100"], [132, 128, 1024], [1.83, 3350.0])
    },
];

const fn device(
    [architecture, name]: [&'static str; 2],
    [multiprocessors, fma_per_cycle, products_per_cycle]: [usize; 3],
    [cycles_per_ns, memory_bytes_per_ns]: [f64; 2],
) -> Device {
    Device {
        architecture,
        name,
        multiprocessors,
        cycles_per_ns,
        fma_per_cycle,
        products_per_cycle,
        warpgroup_products_per_cycle: products_per_cycle,
        memory_bytes_per_ns,
    }
}

/// Lanes that keep the four schedulers of a multiprocessor busy, where each has one warp that is ready. More are needed
/// where warps wait.
pub const LANES_THAT_FILL: usize = 4 * WARP_LANES;

/// The share of the peak of tensor cores that products are estimated to reach. Assumed, measured nowhere.
pub const PRODUCTS_REACHED: f64 = 0.5;

/// Nanoseconds that a launch takes at least, where others follow it on the queue. Assumed: launches of kernels of 2.9
/// microseconds were measured to follow each other in 3.8 (A. Gray, Getting Started with CUDA Graphs, NVIDIA, 2019).
pub const LAUNCH_NANOSECONDS: f64 = 3_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// The peaks that the sources state, in 10^12 operations a second.
    #[test]
    fn figures_give_the_peaks_of_their_sources() {
        let peak = |device: &Device, each: usize| {
            (2 * each * device.multiprocessors) as f64 * device.cycles_per_ns / 1e3
        };
        for (name, f32, narrow) in [
            ("sm_75", 8.1, 65.0),
            ("sm_80", 19.5, 312.0),
            ("sm_86", 31.2, 125.0),
            ("sm_89", 30.3, 121.0),
        ] {
            let peaks = Device::of_architecture(name).map(|device| {
                [device.fma_per_cycle, device.products_per_cycle].map(|each| peak(device, each))
            });
            let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.01;
            assert!(
                peaks.is_some_and(|[a, b]| near(a, f32) && near(b, narrow)),
                "{name}: {peaks:?}"
            );
        }
        let warpgroups = Device::of_architecture("sm_90a")
            .map(|device| peak(device, device.warpgroup_products_per_cycle));
        assert!(warpgroups.is_some_and(|peak| (peak / 989.0 - 1.0).abs() < 0.01), "{warpgroups:?}");
        assert_eq!(Device::of_architecture("opencl"), None);
    }
}
