//! Plots as SVG text, to stand inside the page.

use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;

use crate::work::Details;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

const SIZE: (u32, u32) = (540, 300);
const OURS: RGBColor = RGBColor(0, 108, 117);
const NAIVE: RGBColor = RGBColor(201, 134, 43);
const INK: RGBColor = RGBColor(40, 48, 56);
const FAINT: RGBColor = RGBColor(222, 226, 230);

/// Every step under the machine's roofline, both axes logarithmic; `None` without peaks or times.
pub fn roofline(details: &Details) -> Option<String> {
    let peaks = details.peaks.as_ref()?;
    let points: Vec<(f64, f64, u64)> = details
        .steps
        .iter()
        .filter(|step| step.nanoseconds > 0 && step.bytes > 0 && step.flops > 0)
        .map(|step| {
            let intensity = step.flops as f64 / step.bytes as f64;
            (intensity, step.flops as f64 / step.nanoseconds as f64, step.nanoseconds)
        })
        .collect();
    let total: u64 = points.iter().map(|point| point.2).sum();
    (!points.is_empty()).then_some(())?;
    let (peak, slope) = (peaks.flops / 1e9, peaks.bandwidth / 1e9);
    let ridge = peak / slope;
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MAX, f64::min);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MIN, f64::max);
    let x = (least(&mut points.iter().map(|p| p.0)).min(ridge / 4.0) / 2.0)
        ..(most(&mut points.iter().map(|p| p.0)).max(ridge * 4.0) * 2.0);
    let y = (least(&mut points.iter().map(|p| p.1)) / 2.0)
        ..(most(&mut points.iter().map(|p| p.1)).max(peak) * 2.0);
    drawn(|area| {
        let mut chart =
            framed(area).build_cartesian_2d(x.clone().log_scale(), y.clone().log_scale())?;
        styled(&mut chart.configure_mesh())
            .x_desc("operations per byte")
            .y_desc("GFLOP/s")
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .draw()?;
        let roof = [x.start, ridge, x.end].map(|at| (at, (at * slope).min(peak)));
        chart.draw_series(LineSeries::new(roof, INK.stroke_width(2)))?;
        chart.draw_series(points.iter().map(|(x, y, time)| {
            // The area of a disc is the step's share of the run.
            let radius = 3.0 + 24.0 * (*time as f64 / total.max(1) as f64).sqrt();
            Circle::new((*x, *y), radius as i32, OURS.mix(0.45).filled())
        }))?;
        Ok(())
    })
}

/// How the latencies are distributed, of ours and of naive schedules; `None` where none were measured.
pub fn distribution(details: &Details) -> Option<String> {
    let (ours, naive) = (&details.latencies, &details.naive_latencies);
    let mut all: Vec<u64> = ours.iter().chain(naive).copied().collect();
    all.sort_unstable();
    let unit = if *all.last()? < 2_000_000 { 1e3 } else { 1e6 };
    // Rare long runs would squeeze all others into a corner.
    let end = |list: &[u64]| {
        let mut sorted = list.to_vec();
        sorted.sort_unstable();
        sorted.get(sorted.len().saturating_sub(1) * 98 / 100).copied().unwrap_or(0)
    };
    let (first, last) = (all[0] as f64 / unit, end(ours).max(end(naive)) as f64 / unit);
    let x = (first * 0.98)..(last * 1.02).max(first * 1.001);
    drawn(|area| {
        let mut chart = framed(area).build_cartesian_2d(x.clone().log_scale(), 0.0..100.0)?;
        styled(&mut chart.configure_mesh())
            .x_desc(if unit == 1e3 { "latency, µs" } else { "latency, ms" })
            .y_desc("% of runs at most")
            .x_labels(5)
            .y_labels(6)
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .draw()?;
        for (list, colour) in [(ours, OURS), (naive, NAIVE)] {
            chart.draw_series(LineSeries::new(steps(list, unit), colour.stroke_width(2)))?;
        }
        Ok(())
    })
}

/// The time that a run was expected to take after so many trials of a search; `None` for fewer than two points.
pub fn tuning(curve: &[(usize, f64)]) -> Option<String> {
    let points: Vec<(f64, f64)> = curve.iter().map(|own| (own.0 as f64, own.1 / 1e6)).collect();
    let (first, last) = (points.first()?, points.last()?);
    if points.len() < 2 || !(last.1 > 0.0 && first.1.is_finite()) {
        return None;
    }
    let low = points.iter().fold(f64::MAX, |low, own| low.min(own.1));
    drawn(|area| {
        let mut chart =
            framed(area).build_cartesian_2d(0.0..last.0.max(1.0), low * 0.97..first.1 * 1.02)?;
        styled(&mut chart.configure_mesh())
            .x_desc("trials")
            .y_desc("expected latency, ms")
            .x_label_formatter(&|value| format!("{value:.0}"))
            .y_label_formatter(&|value| format!("{value:.3}"))
            .draw()?;
        chart.draw_series(LineSeries::new(points.iter().copied(), OURS.stroke_width(2)))?;
        Ok(())
    })
}

/// The share of values up to each, in percent.
fn steps(values: &[u64], unit: f64) -> Vec<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let count = sorted.len() as f64;
    let mut line = Vec::with_capacity(sorted.len() * 2);
    for (index, value) in sorted.iter().enumerate() {
        let at = *value as f64 / unit;
        line.push((at, index as f64 / count * 100.0));
        line.push((at, (index + 1) as f64 / count * 100.0));
    }
    line
}

/// A chart with room for its labels.
fn framed<'a, 'b>(area: &'a Area<'b>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(area);
    chart.margin(12).x_label_area_size(42).y_label_area_size(64);
    chart
}

/// Grid and axes as on the rest of the page.
fn styled<'m, 'a, 'b, X: Ranged, Y: Ranged, B: DrawingBackend>(
    mesh: &'m mut MeshStyle<'a, 'b, X, Y, B>,
) -> &'m mut MeshStyle<'a, 'b, X, Y, B> {
    mesh.light_line_style(WHITE).bold_line_style(FAINT).axis_style(INK).label_style(font())
}

fn font() -> TextStyle<'static> {
    ("system-ui, sans-serif", 13).into_font().color(&INK)
}

fn short(value: f64) -> String {
    match value {
        value if value >= 10.0 => format!("{value:.0}"),
        0.0 => "0".to_owned(),
        value if value >= 0.1 => format!("{value:.1}"),
        value => format!("{value:.0e}"),
    }
}

/// The SVG of a plot; `None` where it cannot be drawn, which leaves the rest of the page whole.
fn drawn(draw: impl FnOnce(&Area<'_>) -> Drawn) -> Option<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&area).ok()?;
        area.present().ok()?;
    }
    // The page gives the size.
    Some(svg.replacen("<svg ", "<svg role=\"img\" class=\"plot\" ", 1))
}
