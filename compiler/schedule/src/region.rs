//! The box of elements that one iteration of a loop touches, in terms of the loops around it.

use crate::edit::block_domain;
use hone_tensor::{BinaryOp, BlockId, BufferId, Domain, Expr, Level, Loop, Program, Scope, VarId};

/// The range of one axis: from the least of several minima to the largest of several maxima.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// For each access its lower bounds (the largest counts) and upper bounds (the least counts).
    sites: Vec<(Vec<Expr>, Vec<Expr>)>,
    /// The loops whose variables the bounds mention.
    outer: Domain,
}

impl Span {
    /// A span without accesses.
    fn empty(outer: Domain) -> Self {
        Self { sites: vec![], outer }
    }

    /// Adds the values of `index` over the loops of `domain` that lie inside the outer ones, cut to
    /// `0..extent`.
    fn cover(&mut self, index: &Expr, domain: &Domain, extent: usize) {
        let depth = self.outer.len();
        let mut lower = domain.lower(index, depth).unwrap_or_default();
        let mut upper = domain.upper(index, depth).unwrap_or_default();
        lower.push(Expr::Integer(0));
        upper.push(Expr::Integer(extent as i64 - 1));
        let site = (self.outer.closest(lower, false), self.outer.closest(upper, true));
        if !self.sites.contains(&site) {
            self.sites.push(site);
        }
    }

    /// The span moved by `offset` and cut to `0..extent`.
    pub(crate) fn moved(&self, offset: &Expr, extent: usize) -> Self {
        let add = |bounds: &[Expr]| -> Vec<Expr> {
            bounds
                .iter()
                .map(|bound| self.outer.simplify(&(bound.clone() + offset.clone())))
                .collect()
        };
        let sites = self.sites.iter().map(|(lower, upper)| {
            let (mut lower, mut upper) = (add(lower), add(upper));
            lower.push(Expr::Integer(0));
            upper.push(Expr::Integer(extent as i64 - 1));
            (self.outer.closest(lower, false), self.outer.closest(upper, true))
        });
        Self { sites: sites.collect(), outer: self.outer.clone() }
    }

    /// The least index.
    pub(crate) fn minimum(&self) -> Expr {
        let minima = self.sites.iter().map(|(lower, _)| fold(lower, Expr::maximum));
        let minima = self.outer.closest(minima.collect(), true);
        self.outer.simplify(&fold(&minima, Expr::minimum))
    }

    /// Number of indices from the least to the largest one.
    pub(crate) fn extent(&self) -> Expr {
        let minimum = self.minimum();
        let extents = self.sites.iter().map(|(_, upper)| {
            let extents = upper
                .iter()
                .map(|bound| self.outer.simplify(&(bound.clone() - minimum.clone() + 1)));
            fold(&self.outer.closest(extents.collect(), true), Expr::minimum)
        });
        let extents = self.outer.closest(extents.collect(), false);
        self.outer.simplify_extent(&fold(&extents, Expr::maximum))
    }

    /// The least index divided by `width`, where it is a multiple of that.
    pub(crate) fn divided(&self, width: &Expr) -> Option<Expr> {
        let minimum = self.minimum();
        let divided = minimum.clone().binary(BinaryOp::FloorDivide, width.clone());
        let divided = self.outer.simplify(&divided);
        let rest = self.outer.simplify(&(minimum - divided.clone() * width.clone()));
        (rest == Expr::Integer(0)).then_some(divided)
    }

    /// The largest extent over all iterations of the outer loops, at least 1.
    pub(crate) fn limit(&self, whole: usize) -> usize {
        let pairs = self.sites.iter().flat_map(|(_, upper)| {
            self.sites.iter().map(move |(lower, _)| self.widest(lower, upper))
        });
        let widest = pairs.map(|own| own.unwrap_or(whole as i64)).max().unwrap_or(0);
        usize::try_from(widest.max(1)).unwrap_or(1).min(whole.max(1))
    }

    fn widest(&self, lower: &[Expr], upper: &[Expr]) -> Option<i64> {
        let pairs = upper.iter().flat_map(|high| lower.iter().map(move |low| (high, low)));
        pairs
            .filter_map(|(high, low)| {
                let extent = self.outer.simplify(&(high.clone() - low.clone() + 1));
                self.outer.bounds(&extent).map(|range| range.max)
            })
            .min()
    }
}

fn fold(bounds: &[Expr], join: fn(Expr, Expr) -> Expr) -> Expr {
    bounds.iter().cloned().reduce(join).unwrap_or(Expr::Integer(0))
}

/// What `blocks` load from `buffer` in one iteration of the outermost `depth` loops around them.
pub(crate) fn of_loads(
    program: &Program,
    buffer: BufferId,
    blocks: &[BlockId],
    depth: usize,
) -> Vec<Span> {
    of_accesses(program, buffer, blocks, depth, |block| {
        program.blocks[block].loads(buffer).into_iter().map(<[Expr]>::to_vec).collect()
    })
}

/// What `blocks` store to `buffer` in one iteration of the outermost `depth` loops around them.
pub(crate) fn of_stores(
    program: &Program,
    buffer: BufferId,
    blocks: &[BlockId],
    depth: usize,
) -> Vec<Span> {
    of_accesses(program, buffer, blocks, depth, |block| vec![program.blocks[block].indices.clone()])
}

fn of_accesses(
    program: &Program,
    buffer: BufferId,
    blocks: &[BlockId],
    depth: usize,
    accesses: impl Fn(BlockId) -> Vec<Vec<Expr>>,
) -> Vec<Span> {
    let shape = &program.buffers[buffer].shape;
    let mut spans: Option<Vec<Span>> = None;
    for block in blocks {
        let Some(path) = program.find_block(*block) else { continue };
        let Some(realize) = program.realize_of(*block) else { continue };
        let (domain, outer) = match program.buffers[buffer].scope {
            Scope::Shared => of_all_lanes(program, &path, depth),
            _ => {
                let domain = program.domain_at(&path);
                let outer = domain.outer(depth.min(domain.len()));
                (domain, outer)
            }
        };
        let spans = spans.get_or_insert_with(|| vec![Span::empty(outer.clone()); shape.len()]);
        for indices in accesses(*block) {
            for ((span, index), extent) in spans.iter_mut().zip(&indices).zip(shape) {
                let own = &program.blocks[*block];
                let index = realize.resolve(own, index, &block_domain(own, &domain));
                span.cover(&index, &domain, *extent);
            }
        }
    }
    spans.unwrap_or_default()
}

/// The loops around a place, and those of the outermost `depth` in one iteration of which the lanes of a block
/// access shared memory together: all but the loops over lanes, which come behind them.
fn of_all_lanes(program: &Program, path: &[usize], depth: usize) -> (Domain, Domain) {
    let loops = program.enclosing(path);
    let (around, inside) = loops.split_at(depth.min(loops.len()));
    let over_lanes = |own: &&&Loop| own.is_bound_to(Level::Lane);
    let lanes: Vec<VarId> = around.iter().filter(over_lanes).map(|own| own.var).collect();
    // What depends on the lane has another extent on each: all of its iterations count.
    let alike = |own: &&&Loop| !lanes.iter().any(|lane| own.extent.mentions(*lane));
    let common = around.iter().take_while(alike).filter(|own| !over_lanes(own));
    let mut domain = Domain::default();
    common.clone().for_each(|own| domain.push(own.var, &own.extent));
    let outer = domain.clone();
    let rest = around.iter().filter(|own| !common.clone().any(|other| other.var == own.var));
    rest.chain(inside).for_each(|own| domain.push(own.var, &own.extent));
    (domain, outer)
}
