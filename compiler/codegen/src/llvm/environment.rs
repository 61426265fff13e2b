//! What is known about each loop variable where code is being emitted.

use hone_tensor::{BinaryOp, Expr, Range, VarId, bounds, simplify};
use hone_types::Id;
use inkwell::values::IntValue;
use std::collections::HashMap;

/// What a variable is here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Binding<'c> {
    /// One value, known now.
    Constant(i64),
    /// A value of the running program, with its range.
    Running(IntValue<'c>, Range),
    /// The vector's lanes: `first + lane`.
    Lanes(Lanes),
}

/// The lanes that a vectorized loop's variable runs over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    /// The variable.
    pub(crate) var: VarId,
    /// Its value in lane 0.
    pub(crate) first: i64,
    /// Lanes that count.
    pub(crate) count: u32,
    /// Lanes of the vectors; those from `count` on are masked.
    pub(crate) width: u32,
}

/// Variables in scope.
#[derive(Debug)]
pub(crate) struct Environment<'c> {
    bindings: HashMap<VarId, Binding<'c>>,
    /// Nesting depth at which each variable was bound, for hoistable addresses.
    depths: HashMap<VarId, usize>,
    /// Quotients and remainders that have variables.
    atoms: Vec<(Expr, VarId)>,
    next: usize,
}

impl<'c> Environment<'c> {
    /// Empty, for a program of `vars` variables.
    pub(crate) fn new(vars: usize) -> Self {
        Self { bindings: HashMap::new(), depths: HashMap::new(), atoms: vec![], next: vars }
    }

    /// Binds `var` until [`Environment::unbind`].
    pub(crate) fn bind(&mut self, var: VarId, binding: Binding<'c>) {
        let depth = self.bindings.len();
        self.bindings.insert(var, binding);
        self.depths.entry(var).or_insert(depth);
    }

    /// Forgets `var`.
    pub(crate) fn unbind(&mut self, var: VarId) {
        self.bindings.remove(&var);
        self.depths.remove(&var);
    }

    pub(crate) fn get(&self, var: VarId) -> Option<Binding<'c>> {
        self.bindings.get(&var).copied()
    }

    /// The lanes, inside a vectorized loop.
    pub(crate) fn lanes(&self) -> Option<Lanes> {
        self.bindings.values().find_map(|binding| match binding {
            Binding::Lanes(lanes) => Some(*lanes),
            _ => None,
        })
    }

    /// The values that `var` may have here.
    pub(crate) fn range(&self, var: VarId) -> Option<Range> {
        self.bindings.get(&var).map(|binding| match binding {
            Binding::Constant(value) => Range::point(*value),
            Binding::Running(_, range) => *range,
            Binding::Lanes(lanes) => {
                Range { min: lanes.first, max: lanes.first + i64::from(lanes.count) - 1 }
            }
        })
    }

    /// The expression in terms of running variables and lanes, in simplest form.
    pub(crate) fn simplify(&self, expr: &Expr) -> Expr {
        self.simplify_under(expr, &|_| None)
    }

    /// [`Environment::simplify`] where `known` gives other bindings to some variables.
    pub(crate) fn simplify_under(
        &self,
        expr: &Expr,
        known: &dyn Fn(VarId) -> Option<Range>,
    ) -> Expr {
        let range = |var| known(var).or_else(|| self.range(var));
        let constant = |var| {
            range(var).filter(|range| range.min == range.max).map(|range| Expr::Integer(range.min))
        };
        let mut simple = simplify(&expr.substitute(&constant), &range);
        // Naming one atom may make another; each round names at least one, so this ends.
        for _ in 0..=self.atoms.len() {
            let named = self.name_atoms(&simple);
            if named == simple {
                break;
            }
            simple = simplify(&named.substitute(&constant), &range);
        }
        simple
    }

    fn name_atoms(&self, expr: &Expr) -> Expr {
        if self.atoms.is_empty() {
            return expr.clone();
        }
        let expr = expr.map_operands(&mut |operand| self.name_atoms(operand));
        match self.atoms.iter().find(|(atom, _)| *atom == expr) {
            Some((_, var)) => Expr::Var(*var),
            None => expr,
        }
    }

    /// The range of a simplified index.
    pub(crate) fn bounds(&self, expr: &Expr) -> Option<Range> {
        bounds(expr, &|var| self.range(var))
    }

    /// Whether all variables of `expr` have a value here that is the same in all lanes.
    pub(crate) fn is_bound(&self, expr: &Expr) -> bool {
        let mut bound = true;
        expr.visit(&mut |expr| match expr {
            Expr::Var(var) => {
                let binding = self.bindings.get(var);
                bound &= matches!(binding, Some(Binding::Constant(_) | Binding::Running(..)));
            }
            Expr::Load(..) => bound = false,
            _ => {}
        });
        bound
    }

    /// How deep the innermost variable of `expr` was bound.
    pub(crate) fn depth(&self, expr: &Expr) -> usize {
        let mut depth = 0;
        expr.visit(&mut |expr| {
            if let Expr::Var(var) = expr {
                depth = depth.max(self.depths.get(var).map_or(0, |defined| defined + 1));
            }
        });
        depth
    }

    /// Whether an atom has a variable already.
    pub(crate) fn is_named(&self, atom: &Expr) -> bool {
        self.atoms.iter().any(|(known, _)| known == atom)
    }

    /// A variable that the program does not have.
    pub(crate) fn fresh(&mut self) -> VarId {
        self.next += 1;
        VarId::from_index(self.next - 1)
    }

    /// Gives a quotient or remainder a new variable; the caller binds it.
    pub(crate) fn define_atom(&mut self, atom: Expr) -> VarId {
        let var = self.fresh();
        self.atoms.push((atom, var));
        var
    }

    /// Number of atoms, for [`Environment::forget_atoms`].
    pub(crate) fn atoms(&self) -> usize {
        self.atoms.len()
    }

    /// Forgets all but the first `count` atoms.
    pub(crate) fn forget_atoms(&mut self, count: usize) {
        for (_, var) in self.atoms.split_off(count) {
            self.unbind(var);
        }
    }
}

/// Whether an expression is a quotient or remainder by a constant.
pub(crate) fn is_atom(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Binary(BinaryOp::FloorDivide | BinaryOp::Modulo, _, divisor)
            if divisor.as_integer().is_some_and(|divisor| divisor > 0)
    )
}
