//! Levels of a device that runs many threads, axes of loops that are bound to them, and its limits.
//!
//! A *launch* runs a grid of blocks (work-groups), a block a number of lanes (work-items). Memory follows:
//! what is global is seen by the grid, shared memory by the lanes of one block, scratch memory and
//! registers by one lane.

/// A level of the hardware, named by what one iteration of a loop that is bound to it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// A launch, complete before the next one starts: iterations run in order.
    Grid,
    /// A work-group: iterations run in any order, without waiting for each other.
    Block,
    /// A work-item of a block: iterations run abreast, and wait for each other at a `sync`.
    Lane,
}

impl Level {
    /// Its word in programs and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Grid => "grid",
            Level::Block => "block",
            Level::Lane => "lane",
        }
    }
}

/// A dimension of a level. `X` is the innermost: neighbours along it are neighbours in hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// The innermost.
    X,
    /// The middle one.
    Y,
    /// The outermost.
    Z,
}

/// What a loop may be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Axis {
    /// What one iteration is.
    pub level: Level,
    /// Along which dimension.
    pub dimension: Dimension,
}

impl Axis {
    /// Every axis and its text form.
    pub const ALL: [(Axis, &'static str); 9] = {
        use Dimension::{X, Y, Z};
        const fn axis(level: Level, dimension: Dimension) -> Axis {
            Axis { level, dimension }
        }
        [
            (axis(Level::Grid, X), "grid.x"),
            (axis(Level::Grid, Y), "grid.y"),
            (axis(Level::Grid, Z), "grid.z"),
            (axis(Level::Block, X), "block.x"),
            (axis(Level::Block, Y), "block.y"),
            (axis(Level::Block, Z), "block.z"),
            (axis(Level::Lane, X), "lane.x"),
            (axis(Level::Lane, Y), "lane.y"),
            (axis(Level::Lane, Z), "lane.z"),
        ]
    };

    /// The axis of a level.
    pub const fn new(level: Level, dimension: Dimension) -> Self {
        Self { level, dimension }
    }

    /// The text form, such as `block.x`.
    pub const fn name(self) -> &'static str {
        Self::ALL[self.level as usize * 3 + self.dimension as usize].1
    }
}

/// What a device allows a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Blocks along each dimension.
    pub blocks: usize,
    /// Lanes of a block along `x`, `y` and `z`.
    pub lanes_along: [usize; 3],
    /// Lanes of a block in all.
    pub lanes: usize,
    /// Bytes of shared memory of a block.
    pub shared_bytes: usize,
}

impl Limits {
    /// What every device has that runs WebGPU: the default limits of its specification
    /// (`maxComputeWorkgroupsPerDimension`, `maxComputeWorkgroupSizeX`, `…Y`, `…Z`,
    /// `maxComputeInvocationsPerWorkgroup`, `maxComputeWorkgroupStorageSize`).
    pub const PORTABLE: Limits =
        Limits { blocks: 65_535, lanes_along: [256, 256, 64], lanes: 256, shared_bytes: 16_384 };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_where_the_axis_finds_them() {
        for (axis, name) in Axis::ALL {
            assert_eq!(axis.name(), name);
            assert!(name.starts_with(axis.level.name()));
        }
    }
}
