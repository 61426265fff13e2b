//! What this program says where a model cannot be compiled for the sizes that are asked for.

use std::error::Error;
use std::fmt;

use hone_artifact::exit_code::Reason;
use hone_dimensions::{DimensionError, OpenDimensions};

use crate::compiler::{Model, cannot_be_compiled, import_reason};
use crate::failure::Failure;

/// Dimensions that are open and cannot stay so, with lines for the YAML file that say how large they are.
#[derive(Debug)]
pub struct Unsized(pub OpenDimensions);

impl Error for Unsized {}

impl fmt::Display for Unsized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = |needed: &hone_dimensions::NeededDimension| {
            format!("{{name: \"{}\", sizes: [{}]}}", needed.name, needed.proposed)
        };
        let entries: Vec<String> = self.0.named().map(entry).collect();
        write!(f, "{}\nfor example, in the YAML file: inputs: [{}]", self.0, entries.join(", "))
    }
}

/// The failure of a model that cannot be compiled for its sizes.
pub(crate) fn failure(model: &Model, error: DimensionError) -> Failure {
    let name = &model.name;
    let cannot = |what: &str| format!("model '{name}' cannot be compiled{what}");
    let invalid = |message: String, source: Box<dyn Error + Send + Sync>| {
        Failure::because(Reason::InvalidShape, message, source)
    };
    match error {
        DimensionError::Signature(error) => {
            let message = format!("model '{name}' cannot be imported");
            Failure::because(import_reason(&error), message, error)
        }
        DimensionError::Import(error) => cannot_be_compiled(model, *error),
        DimensionError::ElementType { .. } => Failure::new(Reason::InvalidSpec, error.to_string()),
        DimensionError::Internal(message) => Failure::internal(message),
        DimensionError::Sizes { name, source } => {
            invalid(format!("the sizes of '{name}' cannot be used"), source)
        }
        DimensionError::Combinations(source) => invalid(cannot(" for these sizes"), source.into()),
        DimensionError::Open(open) => invalid(cannot(""), Unsized(open).into()),
        DimensionError::Dependence { name, source } => {
            invalid(cannot(&format!(" for any size of '{name}'; name its sizes instead")), source)
        }
        DimensionError::NotPadded { name, source } => {
            let what = format!(" for every size of '{name}'; name its sizes instead");
            invalid(cannot(&what), source.into())
        }
        DimensionError::Beside { name, others } => {
            let message = cannot(&format!(
                " for any size of '{name}' beside {others} combinations of others: name fewer sizes of these"
            ));
            Failure::new(Reason::InvalidShape, message)
        }
    }
}
