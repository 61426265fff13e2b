//! Kernels that run in order, as recurrences do, brought next to each other where none needs the other: the runtime then runs
//! both at the same time, each on a thread of its own. The two directions of a recurrent layer are such kernels.

use crate::kernels::{Call, LoweredItem};
use crate::storage::Buffers;
use hone_graph::ValueId;
use hone_tensor::{Program, Statement};
use std::collections::{HashSet, VecDeque};

/// Items behind a kernel among which another one is looked for; it bounds the time that this takes.
const MOST_BETWEEN: usize = 32;

/// Whether a program has several blocks in a loop whose iterations depend on those before: threads cannot share it.
pub(crate) fn runs_in_order(program: &Program) -> bool {
    program.body.iter().any(|statement| match statement {
        Statement::Loop(outer) => {
            statement.blocks().len() > 1 && program.threads_apart(outer.var).is_err()
        }
        Statement::Realize(_) | Statement::Sync(_) => false,
    })
}

/// Puts calls for which `in_order` holds next to each other, in pairs that do not depend on each other, and says so of the
/// first of each. All other calls keep their order among each other.
pub(crate) fn bring_together(
    items: Vec<LoweredItem>,
    buffers: &Buffers,
    in_order: impl Fn(&Call) -> bool,
) -> Vec<LoweredItem> {
    let mut ordered = Vec::with_capacity(items.len());
    let mut rest = VecDeque::from(items);
    while let Some(mut item) = rest.pop_front() {
        let found = match &item {
            LoweredItem::Call(call) if in_order(call) => partner(call, &rest, buffers, &in_order),
            _ => None,
        };
        let Some((at, depends)) = found else {
            ordered.push(item);
            continue;
        };
        if let LoweredItem::Call(call) = &mut item {
            call.beside_next = true;
        }
        let mut behind = Vec::new();
        let mut between: Vec<LoweredItem> = rest.drain(..=at).collect();
        let partner = between.pop();
        for (item, depends) in between.into_iter().zip(depends) {
            if depends { behind.push(item) } else { ordered.push(item) }
        }
        ordered.push(item);
        ordered.extend(partner);
        behind.into_iter().rev().for_each(|item| rest.push_front(item));
    }
    ordered
}

/// The first call behind `call` that runs in order, too, and does not depend on it: its position, and which of those before
/// it do.
fn partner(
    call: &Call,
    rest: &VecDeque<LoweredItem>,
    buffers: &Buffers,
    in_order: impl Fn(&Call) -> bool,
) -> Option<(usize, Vec<bool>)> {
    let lies_in = |value: &ValueId| buffers.of(*value).0;
    let mut changed: HashSet<ValueId> =
        call.parameters[call.inputs..].iter().map(lies_in).collect();
    let mut depends = Vec::new();
    for (at, item) in rest.iter().enumerate().take(MOST_BETWEEN) {
        // A node with graphs inside reads more than its call says.
        let LoweredItem::Call(next) = item else { return None };
        let (inputs, outputs) = next.parameters.split_at(next.inputs);
        let is_dependent = inputs.iter().any(|value| changed.contains(&lies_in(value)));
        if is_dependent {
            changed.extend(outputs.iter().map(lies_in));
        } else if in_order(next) {
            return Some((at, depends));
        }
        depends.push(is_dependent);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use hone_types::Id as _;

    /// A call of the kernel of this number, which reads and writes values.
    fn call(kernel: usize, reads: &[usize], writes: usize) -> LoweredItem {
        let parameters = reads.iter().chain([&writes]).map(|value| ValueId::from_index(*value));
        LoweredItem::Call(Call {
            kernel,
            group: 0,
            parameters: parameters.collect(),
            inputs: reads.len(),
            nodes: Vec::new(),
            flops: 0,
            needed: Vec::new(),
            beside_next: false,
        })
    }

    /// What each call writes, in order, and whether it is beside the next; kernels above 9 run in order.
    fn order(items: Vec<LoweredItem>) -> Vec<(usize, bool)> {
        let buffers = Buffers::new(&[], &[]);
        let items = bring_together(items, &buffers, |call| call.kernel > 9);
        let calls = items.iter().filter_map(|item| match item {
            LoweredItem::Call(call) => {
                Some((call.parameters[call.inputs].index(), call.beside_next))
            }
            LoweredItem::Regions(..) => None,
        });
        calls.collect()
    }

    #[test]
    fn two_directions_of_a_layer_are_next_to_each_other() {
        // A product and a recurrence for each direction, then what joins them, and the next layer.
        let layer = vec![
            call(0, &[0], 1),
            call(10, &[1], 2),
            call(1, &[2], 3),
            call(0, &[0], 4),
            call(10, &[4], 5),
            call(2, &[3, 5], 6),
            call(10, &[6], 7),
        ];
        let expected =
            [(1, false), (4, false), (2, true), (5, false), (3, false), (6, false), (7, false)];
        assert_eq!(order(layer), expected);
    }

    #[test]
    fn what_depends_on_each_other_stays() {
        let layers = vec![call(10, &[0], 1), call(0, &[1], 2), call(10, &[2], 3)];
        assert_eq!(order(layers), [(1, false), (2, false), (3, false)]);
        let far: Vec<LoweredItem> = std::iter::once(call(10, &[0], 1))
            .chain((2..2 + MOST_BETWEEN).map(|value| call(0, &[0], value)))
            .chain([call(10, &[0], 99)])
            .collect();
        assert!(order(far).iter().all(|(_, beside)| !beside));
    }
}
