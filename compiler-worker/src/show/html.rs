//! The report as one page that needs nothing else: no script, no other file.

use std::fmt::Write;

use hone_artifact::report::Report;

use super::{plot, table, units};
use crate::work::{Details, StepDetail};

/// The whole page.
pub fn page(report: &Report, details: &Details) -> String {
    let title = format!("{} for {}", escape(&report.subject.name), escape(&report.target));
    let mut body = String::new();
    let target = &details.target;
    let _ = write!(
        body,
        "<h1>{title}</h1>\n<p class=\"sub\">{} · {} · {}</p>\n",
        escape(&target.triple),
        escape(&target.cpu),
        report.finished.as_deref().map(escape).unwrap_or_default(),
    );
    cards(&mut body, report, details);
    sizes(&mut body, report);
    plots(&mut body, details);
    steps(&mut body, details);
    stages(&mut body, details);
    facts(&mut body, report, details);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title} – Hone</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        include_str!("page.css"),
    )
}

fn cards(body: &mut String, report: &Report, details: &Details) {
    body.push_str("<div class=\"cards\">\n");
    let mut card = |class: &str, value: String, what: String| {
        let _ =
            writeln!(body, "<div class=\"card {class}\"><b>{value}</b><span>{what}</span></div>");
    };
    if let Some(latency) = &report.latency {
        let sure = match (latency.ci_low, latency.ci_high) {
            (Some(low), Some(high)) => {
                format!("median latency; 95 % sure: {} to {}", units::time(low), units::time(high))
            }
            _ => "median latency".to_owned(),
        };
        card("good", units::time(latency.p50), sure);
        if let Some(untuned) = latency.untuned {
            let gain = units::digits(untuned as f64 / latency.p50.max(1) as f64);
            card(
                "good",
                format!("{gain}×"),
                format!("faster than naive schedules ({})", units::time(untuned)),
            );
        }
        if let (Some(share), Some(peaks)) = (details.share_of_peak(latency.p50), &details.peaks) {
            let peak = units::rate(peaks.flops, "FLOP");
            card(
                "",
                units::share(share),
                format!("of the probed f32 FMA peak, {peak} on {} threads", peaks.threads),
            );
        }
    }
    if let Some(correctness) = &report.correctness {
        let class = if correctness.passed { "good" } else { "bad" };
        let word = if correctness.passed { "correct" } else { "out of tolerance" };
        let error = units::error(correctness.max_abs);
        card(
            class,
            word.to_owned(),
            format!("largest error {error} over {} elements", details.elements_compared),
        );
    }
    if let Some(artifact) = &report.artifact {
        let weights = units::bytes(details.weights_bytes);
        card(
            "",
            units::bytes(artifact.size_bytes),
            format!("artifact, of which {weights} weights"),
        );
    }
    body.push_str("</div>\n");
}

/// Latencies at each of the sizes of an artifact that has several.
fn sizes(body: &mut String, report: &Report) {
    if report.sizes.is_empty() {
        return;
    }
    body.push_str("<h2>Sizes</h2>\n<div class=\"scroll\"><table>\n<tr><th>sizes</th><th>median latency</th><th>naive schedules</th></tr>\n");
    for own in &report.sizes {
        let time = |time: Option<u64>| time.map_or("–".to_owned(), units::time);
        let latency = own.latency.as_ref();
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&own.sizes),
            time(latency.map(|latency| latency.p50)),
            time(latency.and_then(|latency| latency.untuned)),
        );
    }
    body.push_str("</table></div>\n<p>What follows is of the largest sizes.</p>\n");
}

fn plots(body: &mut String, details: &Details) {
    let roofline = plot::roofline(details).map(|svg| {
        (svg, "Each disc is a step, its area the step's share of the time; the line is what this machine was probed to reach.")
    });
    let distribution = plot::distribution(details).map(|svg| {
        let caption = match details.naive_latencies.is_empty() {
            true => "Share of runs that took at most so long.",
            false => "Share of runs that took at most so long; naive schedules in ochre.",
        };
        (svg, caption)
    });
    let tuning = details.tuning.as_ref().and_then(|own| plot::tuning(&own.curve)).map(|svg| {
        (svg, "Time of a run that was expected after so many trials of the last search for faster schedules.")
    });
    let drawn: Vec<_> = roofline.into_iter().chain(distribution).chain(tuning).collect();
    if drawn.is_empty() {
        return;
    }
    body.push_str("<h2>Roofline and latencies</h2>\n<div class=\"plots\">\n");
    for (svg, caption) in drawn {
        let _ = writeln!(body, "<figure>{svg}<figcaption>{caption}</figcaption></figure>");
    }
    body.push_str("</div>\n");
}

/// Steps shown; the rest are summed up, so that a page of a large model stays readable.
const SHOWN: usize = 60;

fn steps(body: &mut String, details: &Details) {
    let total: u64 = details.steps.iter().map(|step| step.nanoseconds).sum();
    if total == 0 {
        return;
    }
    let mut steps: Vec<&StepDetail> = details.steps.iter().collect();
    steps.sort_by_key(|step| std::cmp::Reverse(step.nanoseconds));
    body.push_str("<h2>Steps, slowest first</h2>\n<div class=\"scroll\"><table>\n<tr><th>nodes</th><th>time</th><th>share</th><th></th><th>rate</th><th>traffic</th><th>of roofline</th><th>bound by</th></tr>\n");
    for step in steps.iter().take(SHOWN) {
        let share = step.nanoseconds as f64 / total as f64;
        let seconds = step.nanoseconds.max(1) as f64 * 1e-9;
        let roofline = step.roofline(details.peaks.as_ref());
        let _ = writeln!(
            body,
            "<tr><td title=\"{}\">{}</td><td>{}</td><td>{}</td><td class=\"bar\"><i style=\"width:{:.1}%\"></i></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&step.nodes.join(", ")),
            escape(&table::short(&step.nodes)),
            units::time(step.nanoseconds),
            units::share(share),
            share * 100.0 / (steps[0].nanoseconds as f64 / total as f64),
            units::rate(step.flops as f64 / seconds, "FLOP"),
            units::bytes(step.bytes),
            roofline.as_ref().map_or("–".to_owned(), |r| units::share(r.seconds / seconds)),
            roofline.as_ref().map_or("–", |r| r.bound_by),
        );
    }
    if steps.len() > SHOWN {
        let rest: u64 = steps[SHOWN..].iter().map(|step| step.nanoseconds).sum();
        let more = steps.len() - SHOWN;
        let _ = writeln!(
            body,
            "<tr><td class=\"note\">and {more} more</td><td>{}</td></tr>",
            units::time(rest)
        );
    }
    body.push_str("</table></div>\n");
}

fn stages(body: &mut String, details: &Details) {
    if details.stages.is_empty() {
        return;
    }
    let longest = details.stages.iter().map(|stage| stage.1).fold(f64::MIN_POSITIVE, f64::max);
    body.push_str("<h2>Compiling</h2>\n<div class=\"scroll\"><table>\n<tr><th>stage</th><th>time</th><th></th></tr>\n");
    for (stage, seconds) in &details.stages {
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td>{}</td><td class=\"bar\"><i style=\"width:{:.1}%\"></i></td></tr>",
            escape(stage),
            units::time((seconds * 1e9) as u64),
            seconds / longest * 100.0,
        );
    }
    body.push_str("</table></div>\n");
}

fn facts(body: &mut String, report: &Report, details: &Details) {
    body.push_str("<h2>Provenance</h2>\n<dl>\n");
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(body, "<dt>{name}</dt><dd><code>{}</code></dd>", escape(&value));
        }
    };
    fact(
        "artifact",
        report.artifact.as_ref().map_or(String::new(), |artifact| artifact.uri.clone()),
    );
    fact(
        "digest",
        report.artifact.as_ref().map_or(String::new(), |artifact| artifact.digest.clone()),
    );
    fact("model", report.model_digest.clone().unwrap_or_default());
    fact("machine", report.fingerprint.clone().unwrap_or_default());
    fact("compiler", format!("hone {}", report.compiler));
    fact("arena", units::bytes(details.arena_bytes));
    fact("machine code", units::bytes(details.code_bytes));
    fact("features", details.target.features.join(" "));
    fact("taken from the cache", if report.cache_hit { "yes" } else { "no" }.to_owned());
    fact("notes", details.notes.join("; "));
    body.push_str("</dl>\n");
}

/// Text that cannot become markup: names come from models that nobody trusts.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Peaks;
    use hone_artifact::report::LatencyReport;
    use hone_artifact::request::Subject;

    #[test]
    fn names_of_a_model_never_become_markup() {
        let mut details = Details {
            latencies: vec![1_000_000, 1_100_000],
            peaks: Some(Peaks { threads: 1, flops: 1e11, bandwidth: 1e10, int8: None, bf16: None }),
            ..Details::default()
        };
        details.steps.push(StepDetail {
            nodes: vec!["<script>alert(1)</script>".into()],
            kernel: "k".into(),
            flops: 1000,
            bytes: 100,
            nanoseconds: 1000,
        });
        let subject = Subject { name: "<b>".into(), ..Subject::default() };
        let mut report = Report::new(subject, "host", "0");
        report.latency = Some(LatencyReport { p50: 1_000_000, ..LatencyReport::default() });
        let page = page(&report, &details);
        assert!(
            !page.contains("<script") && !page.contains("<b>&lt;b") && !page.contains("<h1><b>")
        );
        assert!(page.contains("&lt;script&gt;"));
        assert_eq!(page.matches("<svg").count(), 2);
        for outside in ["http://www", "https://", "src=", "@import", "url("] {
            assert!(!page.replace("http://www.w3.org/2000/svg", "").contains(outside), "{outside}");
        }
    }
}
