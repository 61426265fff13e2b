//! Texts cut into tokens (`com.microsoft.Tokenizer`).

use super::strings::{applied, stored, text};
use crate::NodeError;
use crate::onnx::builder::Builder;
use crate::onnx::node::{Node, Outputs};
use hone_ops::{TextFunction, TokenRule, Tokens, text_scanner};

/// Tokens of a string for which there is room where the model declares nothing. What only counts tokens needs no room.
const ROOM: usize = 1024;

/// `Tokenizer`: as many tokens as the longest string has, in a further axis.
pub(super) fn tokenize(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = text(builder, node, 0)?;
    let tokens = read(node)?;
    let rank = builder.rank(x);
    if !(1..=2).contains(&rank) {
        let shape = builder.shape(x);
        return Err(NodeError::invalid(format!("shape {shape:?} has neither one nor two axes")));
    }
    let declared = node.declared(0).filter(|own| own.len() == rank + 1).map(|own| own[rank]);
    let room = match builder.tensor(x).map(|own| own.elements::<u64>()) {
        _ if builder.tensor_type(x).elements() == 0 => 0,
        // Whatever the strings are, these are known.
        Some(handles) => {
            let texts = handles?.into_iter().filter_map(hone_types::text_of);
            texts.map(|own| own.chars().count() + 2).max().unwrap_or(0)
        }
        None => declared.unwrap_or(ROOM),
    };
    let function = TextFunction::Tokenize { tokens: tokens.clone(), room };
    let outputs = applied(builder, function, &[x])?;
    stored(builder, &outputs[..1]);
    let found = builder.cut(outputs[0], rank, outputs[1])?;
    let found = builder.as_text(found);
    builder.tokens.insert(found, (x, tokens));
    Ok(vec![found])
}

/// How the node cuts texts.
fn read(node: &mut Node) -> Result<Tokens, NodeError> {
    let missing = |name: &str| NodeError::invalid(format!("attribute '{name}' is missing"));
    let mark = node.int("mark")?.ok_or_else(|| missing("mark"))? != 0;
    let pad = node.string("pad_value")?.ok_or_else(|| missing("pad_value"))?;
    let least = node.int("mincharnum")?.ok_or_else(|| missing("mincharnum"))?;
    let least = usize::try_from(least).ok().filter(|least| *least > 0);
    let least = least.ok_or_else(|| NodeError::invalid("mincharnum is not above 0"))?;
    let separators = node.strings("separators")?;
    let pattern = node.string("tokenexp")?;
    let rule = match (separators, pattern) {
        (Some(separators), _) if separators.is_empty() => {
            return Err(NodeError::invalid("attribute 'separators' is empty"));
        }
        (Some(separators), _) if separators == [""] => TokenRule::Characters,
        (Some(separators), _) => {
            for separator in &separators {
                if text_scanner(separator).map_err(NodeError::Invalid)?.matches_empty() {
                    return Err(NodeError::invalid(format!(
                        "separator {separator:?} matches where there is no character, which says nothing of \
                         where a text is cut"
                    )));
                }
            }
            TokenRule::Separators(separators)
        }
        (None, Some(pattern)) if pattern == "." => TokenRule::Characters,
        (None, Some(pattern)) if !pattern.is_empty() => {
            text_scanner(&pattern).map_err(NodeError::Invalid)?;
            TokenRule::Pattern(pattern)
        }
        _ => return Err(NodeError::invalid("it has neither separators nor a tokenexp")),
    };
    if rule == TokenRule::Characters && least > 1 {
        return Err(NodeError::invalid("mincharnum is above 1, and tokens are single characters"));
    }
    Ok(Tokens { rule, mark, pad, least })
}
