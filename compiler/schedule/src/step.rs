//! The list of primitives: each line makes a step of the trace and a method of the schedule.

use crate::Layout;
use crate::argument::{Argument, Handle, Results};
use crate::error::{Outcome, ScheduleError};
use crate::schedule::Schedule;
use hone_tensor::{Axis, BlockId, BufferId, Intrinsic, Program, Scope, VarId};
use std::fmt;

macro_rules! steps {
    ($(
        $(#[$doc:meta])*
        $variant:ident = $name:ident($($field:ident: $owned:ty as $given:ty),*) -> $result:ty;
    )*) => {
        /// One application of a primitive. Its text form is `split(v5, factor=14)`.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Step {$(
            $(#[$doc])*
            $variant {$(
                #[doc = concat!("The argument `", stringify!($field), "`.")]
                $field: $owned
            ),*},
        )*}

        impl Step {
            /// The primitive's name.
            pub fn primitive(&self) -> &'static str {
                match self {$(Step::$variant { .. } => stringify!($name),)*}
            }

            /// Applies the primitive to a program.
            pub(crate) fn run(&self, program: &mut Program) -> Outcome<Vec<Handle>> {
                match self {$(
                    Step::$variant { $($field),* } => {
                        let result: $result = crate::$name::apply(program $(, $field.clone())*)?;
                        Ok(result.handles())
                    }
                )*}
            }

            fn arguments(&self) -> Vec<String> {
                match self {$(
                    Step::$variant { $($field),* } => vec![$(print(stringify!($field), $field)),*],
                )*}
            }

            fn of_arguments(name: &str, arguments: &[&str]) -> Result<Self, String> {
                let mut arguments = arguments.iter();
                let step = match name {
                    $(stringify!($name) => Step::$variant {
                        $($field: parse(stringify!($field), arguments.next())?),*
                    },)*
                    _ => return Err(format!("there is no primitive '{name}'")),
                };
                match arguments.next() {
                    Some(extra) => Err(format!("'{extra}' is an argument too many")),
                    None => Ok(step),
                }
            }
        }

        impl Schedule {$(
            $(#[$doc])*
            pub fn $name(&mut self $(, $field: $given)*) -> Result<$result, ScheduleError> {
                $(let $field: $owned = $field.to_owned();)*
                let step = Step::$variant { $($field: $field.clone()),* };
                self.take(step, |program| crate::$name::apply(program $(, $field)*))
            }
        )*}
    };
}

steps! {
    /// Splits a loop in two, `v = outer * factor + inner`; returns (outer, inner). Where the factor
    /// does not divide the extent, the inner extent is `min(factor, extent - outer * factor)`.
    Split = split(target: VarId as VarId, factor: usize as usize) -> (VarId, VarId);
    /// Makes one loop of two, the second directly and alone inside the first.
    Fuse = fuse(outer: VarId as VarId, inner: VarId as VarId) -> VarId;
    /// Makes one loop of two that stand next to each other: each iteration does what both do in theirs. The second goes.
    Merge = merge(first: VarId as VarId, second: VarId as VarId) -> ();
    /// Puts loops of one perfect nest in this order, at the places they hold now.
    Reorder = reorder(loops: Vec<VarId> as &[VarId]) -> ();
    /// Writes a loop out.
    Unroll = unroll(target: VarId as VarId) -> ();
    /// Makes an innermost loop the lanes of a vector.
    Vectorize = vectorize(target: VarId as VarId) -> ();
    /// Makes a loop and the one inside it one instruction, the loop being its lanes.
    Tensorize = tensorize(target: VarId as VarId, intrinsic: Intrinsic as Intrinsic) -> ();
    /// Spreads an outermost loop over threads.
    Parallel = parallel(target: VarId as VarId) -> ();
    /// Makes a loop's iterations the launches, blocks or lanes of a device.
    Bind = bind(target: VarId as VarId, axis: Axis as Axis) -> ();
    /// Makes a loop's iterations virtual threads, which run each statement below it in turn; returns the loops over them,
    /// one for each statement, in order.
    VirtualThread = virtual_thread(target: VarId as VarId) -> Vec<VarId>;
    /// Lets the lanes of a block wait for each other wherever one accesses what another one writes.
    InsertSyncs = insert_syncs() -> ();
    /// Brings near, while one iteration of a loop runs, what a block reads of a buffer in the next.
    Prefetch =
        prefetch(block: BlockId as BlockId, buffer: BufferId as BufferId, target: VarId as VarId) -> ();
    /// Makes a loop an ordinary one again.
    Serial = serial(target: VarId as VarId) -> ();
    /// Puts a map's value in place of every load of it; the block goes.
    ComputeInline = compute_inline(block: BlockId as BlockId) -> ();
    /// Moves a producer below a loop around all its readers, to compute there just what they read.
    ComputeAt = compute_at(block: BlockId as BlockId, target: VarId as VarId) -> ();
    /// Moves a consumer below a loop around its producer, to use there what was just computed.
    ReverseComputeAt = reverse_compute_at(block: BlockId as BlockId, target: VarId as VarId) -> ();
    /// Says where the buffer that a block computes lies.
    SetScope = set_scope(block: BlockId as BlockId, scope: Scope as Scope) -> ();
    /// Puts a map into the map it reads from; the block goes.
    ReverseComputeInline = reverse_compute_inline(block: BlockId as BlockId) -> ();
    /// Puts a copy between a buffer and a block that reads it; returns the copying block.
    CacheRead = cache_read(block: BlockId as BlockId, buffer: BufferId as BufferId, scope: Scope as Scope) -> BlockId;
    /// Puts a copy with an axis for each of a block's iterators between a buffer and the block, which reads it; returns
    /// the copying block.
    Reindex = reindex(block: BlockId as BlockId, buffer: BufferId as BufferId, scope: Scope as Scope) -> BlockId;
    /// Lets a block compute into a buffer of its own, and copies from there; returns the copying
    /// block.
    CacheWrite = cache_write(block: BlockId as BlockId, scope: Scope as Scope) -> BlockId;
    /// Makes setting a reduction's initial value a block of its own, in front of a loop.
    DecomposeReduction =
        decompose_reduction(block: BlockId as BlockId, target: VarId as VarId) -> BlockId;
    /// Computes a reduction in parts, one per iteration of a loop, and then reduces the parts;
    /// returns the block of the parts.
    Rfactor = rfactor(block: BlockId as BlockId, target: VarId as VarId) -> BlockId;
    /// Separates filling a border with a constant from copying the inside, in front of a loop;
    /// returns the filling block.
    DecomposePadding =
        decompose_padding(block: BlockId as BlockId, target: VarId as VarId) -> BlockId;
    /// Separates the iterations of a loop in which the loops below have their full extent from the
    /// last ones; returns the loop over the last ones.
    Partition = partition(target: VarId as VarId) -> VarId;
    /// Changes the order in which the elements of a temporary lie in memory.
    TransformLayout = transform_layout(buffer: BufferId as BufferId, layout: Layout as &Layout) -> ();
}

fn print<T: Argument>(name: &str, argument: &T) -> String {
    if T::POSITIONAL { argument.print() } else { format!("{name}={}", argument.print()) }
}

fn parse<T: Argument>(name: &str, text: Option<&&str>) -> Result<T, String> {
    let text = text.ok_or_else(|| format!("the argument '{name}' is missing"))?;
    let own = text.strip_prefix(name).and_then(|rest| rest.trim_start().strip_prefix('='));
    let own = own.unwrap_or(text).trim();
    T::parse(own).ok_or_else(|| format!("'{own}' does not fit the argument '{name}'"))
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}({})", self.primitive(), self.arguments().join(", "))
    }
}

impl std::str::FromStr for Step {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let text = text.trim();
        let syntax = |reason: String| ScheduleError::Syntax { text: text.to_string(), reason };
        let call = text.strip_suffix(')').and_then(|call| call.split_once('('));
        let (name, arguments) =
            call.ok_or_else(|| syntax("it has no '(...)' at its end".into()))?;
        Step::of_arguments(name.trim(), &split_arguments(arguments)).map_err(syntax)
    }
}

/// Splits at commas outside brackets.
fn split_arguments(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (place, letter) in text.char_indices() {
        match letter {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..place].trim());
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}
