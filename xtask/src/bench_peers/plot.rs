//! A comparison as a picture: bars of latency, one group of them per table.

use std::fmt::Write;

use super::measure::{Group, Measured};
use super::report::title;
use super::runs::is_ours;

const WIDTH: f64 = 900.0;
const NAMES: f64 = 150.0;
const NUMBERS: f64 = 130.0;
const BAR: f64 = 18.0;
const HEAD: f64 = 34.0;

/// Horizontal bars, each group scaled to its slowest bar that is at most ten times its fastest; a
/// longer bar is cut off there and fades out, its number stays. Each group comes with the rounds that count.
pub fn svg(groups: &[(&Group, Vec<bool>)]) -> String {
    let rows: usize = groups.iter().map(|(group, _)| group.results.len()).sum();
    let height = rows as f64 * BAR + groups.len() as f64 * HEAD + 20.0;
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <defs><linearGradient id=\"cut\"><stop offset=\"0.8\" stop-color=\"#9aa5b1\"/>\
         <stop offset=\"1\" stop-color=\"white\"/></linearGradient></defs>\n"
    );
    let mut top = 10.0;
    for (group, kept) in groups {
        top = draw(&mut picture, group, kept, top);
    }
    picture + "</svg>\n"
}

/// Draws `group` from `top` down and returns where it ends.
fn draw(picture: &mut String, group: &Group, kept: &[bool], mut top: f64) -> f64 {
    let _ = writeln!(
        picture,
        "<text x=\"8\" y=\"{:.0}\" font-weight=\"bold\">{} (ms)</text>",
        top + 22.0,
        escaped(&title(group))
    );
    top += HEAD;
    let latency = |result: &Measured| result.latency(kept).unwrap_or(f64::NAN);
    let latencies: Vec<f64> = group.results.iter().map(latency).collect();
    let best = latencies.iter().copied().fold(f64::INFINITY, f64::min);
    let longest = latencies.iter().copied().filter(|&l| l <= 10.0 * best).fold(best, f64::max);
    let scale = (WIDTH - NAMES - NUMBERS) / longest;
    for (result, latency) in group.results.iter().zip(latencies) {
        let width = latency.min(longest) * scale;
        let colour = match result.peer.as_str() {
            _ if latency > longest => "url(#cut)",
            peer if is_ours(peer) => "#d9480f",
            _ => "#9aa5b1",
        };
        let (low, high) = result.spread();
        let _ = writeln!(
            picture,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{NAMES}\" y=\"{:.0}\" width=\"{width:.1}\" height=\"13\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.0}\">{latency:.2} ({low:.2} – {high:.2})</text>",
            NAMES - 6.0,
            top + 11.0,
            escaped(&result.peer),
            top,
            NAMES + width + 5.0,
            top + 11.0,
        );
        top += BAR;
    }
    top
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
