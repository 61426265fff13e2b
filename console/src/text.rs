//! Text of objects for a terminal.

use comfy_table::{Table, TableStyle};
use jiff::{SignedDuration, Timestamp};

/// `text` without characters that steer a terminal: names, messages and logs come from other people's objects and
/// models. Lines and tabs stay.
pub fn plain(text: &str) -> String {
    let harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    // Overrides of the direction of writing make text look like other text.
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if harmless(c) && !turns(c) { c } else { '\u{fffd}' }).collect()
}

/// How long ago, in one unit as kubectl tells it: `12s`, `5m`, `3h`, `2d`; empty without a time.
pub fn age(time: Option<Timestamp>, now: Timestamp) -> String {
    let Some(time) = time else { return String::new() };
    let seconds = now.duration_since(time).max(SignedDuration::ZERO).as_secs();
    match seconds {
        ..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Rows under a head, columns aligned, without lines.
pub fn columns(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new());
    table.set_header(head.to_vec());
    for row in rows {
        table.add_row(row.iter().map(|cell| plain(&cell.replace(['\n', '\t'], " "))));
    }
    let text = table.to_string();
    text.lines().map(|line| format!("{}\n", line.trim().trim_end())).collect()
}

/// `text` with `indent` before every line.
pub fn indented(text: &str, indent: &str) -> String {
    plain(text).lines().map(|line| format!("{indent}{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_replaced() {
        assert_eq!(plain("a\u{1b}[2Jb\nc\u{7}\td"), "a\u{fffd}[2Jb\nc\u{fffd}\td");
        assert_eq!(plain("\u{202e}evil"), "\u{fffd}evil");
    }

    #[test]
    fn ages_have_one_unit() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let before = |seconds: i64| Some(Timestamp::from_second(1_000_000 - seconds).unwrap());
        assert_eq!(age(before(119), now), "119s");
        assert_eq!(age(before(600), now), "10m");
        assert_eq!(age(before(7200), now), "2h");
        assert_eq!(age(before(200_000), now), "2d");
        assert_eq!(age(before(-5), now), "0s");
        assert_eq!(age(None, now), "");
    }
}
