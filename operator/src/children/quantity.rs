//! Kubernetes quantities as numbers, for comparisons.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Suffixes and what they multiply by.
const SUFFIXES: &[(&str, f64)] = &[
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
];

/// The quantity as text, as it was written.
pub fn text(quantity: &IntOrString) -> String {
    match quantity {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}

/// The quantity as a number, near enough to compare; `None` where it is none.
pub fn value(quantity: &IntOrString) -> Option<f64> {
    let text = text(quantity);
    let suffix = SUFFIXES.iter().find(|(suffix, _)| text.ends_with(suffix));
    match suffix {
        Some((suffix, factor)) => Some(text.strip_suffix(suffix)?.parse::<f64>().ok()? * factor),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_compared_as_numbers() {
        let value = |text: &str| value(&IntOrString::String(text.to_owned()));
        for (text, expected) in [
            ("1", 1.0),
            ("1500m", 1.5),
            ("2Gi", 2_147_483_648.0),
            ("2G", 2e9),
            ("1e3", 1e3),
            ("0.5", 0.5),
        ] {
            assert_eq!(value(text), Some(expected), "{text}");
        }
        assert_eq!(value("much"), None);
    }
}
