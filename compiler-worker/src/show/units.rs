//! Numbers with units, short enough for a table.

/// A time, from nanoseconds, with three or four digits.
pub fn time(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{} µs", digits(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", digits(value / 1e6)),
        _ => format!("{} s", digits(value / 1e9)),
    }
}

/// A size in bytes, in powers of 1024.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = 0;
    value /= 1024.0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", digits(value), UNITS[unit])
}

/// A rate per second, in powers of 1000, such as `184 GFLOP/s`.
pub fn rate(per_second: f64, of: &str) -> String {
    match per_second {
        value if value >= 1e12 => format!("{} T{of}/s", digits(value / 1e12)),
        value if value >= 1e9 => format!("{} G{of}/s", digits(value / 1e9)),
        value if value >= 1e6 => format!("{} M{of}/s", digits(value / 1e6)),
        value => format!("{} {of}/s", digits(value)),
    }
}

/// A share, such as `77 %`.
pub fn share(part: f64) -> String {
    match part {
        part if part >= 0.1 => format!("{:.0} %", part * 1e2),
        part => format!("{:.1} %", part * 1e2),
    }
}

/// Three significant digits, never fewer than the whole part has.
pub fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A value of a tensor with six significant digits.
pub fn significant(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if (1e-3..1e6).contains(&size) => format!("{value:.6}"),
        _ => format!("{value:.5e}"),
    }
}

/// A small number as errors are written: `2.1e-5`.
pub fn error(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:.1e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits_and_a_unit() {
        assert_eq!(time(950), "950 ns");
        assert_eq!(time(54_700_000), "54.7 ms");
        assert_eq!(time(2_000_000_000), "2.00 s");
        assert_eq!(bytes(100), "100 B");
        assert_eq!(bytes(97 << 20), "97.0 MiB");
        assert_eq!(rate(184.4e9, "FLOP"), "184 GFLOP/s");
        assert_eq!(share(0.774), "77 %");
        assert_eq!(error(2.13e-5), "2.1e-5");
    }
}
