//! The operator's metrics, as a Prometheus would read them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};

/// The text of `/metrics` at one moment.
pub struct Metrics(String);

impl Metrics {
    /// Reads them off `address`.
    pub fn read(address: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (_, body) = text.split_once("\r\n\r\n").context("no body")?;
        Ok(Self(body.to_owned()))
    }

    /// Samples of a metric: labels as they stand, value.
    fn samples<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.lines().filter_map(move |line| {
            let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
            Some((labels, value.parse().ok()?))
        })
    }

    /// Requests that change something, other than those for the lease.
    pub fn writes(&self) -> f64 {
        let writes = ["POST", "PUT", "PATCH", "DELETE"];
        let samples = self.samples("rest_client_requests_total");
        let writing = samples.filter(|(labels, _)| {
            writes.iter().any(|method| labels.contains(&format!("method=\"{method}\"")))
        });
        writing.map(|(_, value)| value).sum()
    }

    /// The upper end, in seconds, of the bucket that holds a quantile of the wait from an event to the
    /// start of its reconcile, of the reconciles since `before`.
    pub fn wait(&self, before: &Self, quantile: f64) -> f64 {
        let counts: Vec<(f64, f64)> = self
            .buckets()
            .iter()
            .zip(before.buckets().iter().map(|bucket| bucket.1).chain(std::iter::repeat(0.0)))
            .map(|((end, now), then)| (*end, now - then))
            .collect();
        let total = counts.last().map_or(0.0, |bucket| bucket.1);
        let found = counts.iter().find(|bucket| bucket.1 >= quantile * total);
        found.map_or(f64::NAN, |bucket| bucket.0)
    }

    /// Upper ends and cumulative counts, in rising order.
    fn buckets(&self) -> Vec<(f64, f64)> {
        let mut buckets: Vec<(f64, f64)> = self
            .samples("workqueue_queue_duration_seconds_bucket")
            .filter(|(labels, _)| labels.contains("name=\"modelcompilation\""))
            .filter_map(|(labels, count)| {
                let (_, end) = labels.split_once("le=\"")?;
                let end = end.split('"').next()?;
                Some((end.parse().unwrap_or(f64::INFINITY), count))
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# HELP rest_client_requests_total Requests.
rest_client_requests_total{code=\"200\",host=\"h\",method=\"PATCH\"} 7
rest_client_requests_total{code=\"409\",host=\"h\",method=\"POST\"} 2
rest_client_requests_total{code=\"200\",host=\"h\",method=\"GET\"} 100
workqueue_queue_duration_seconds_bucket{controller=\"c\",name=\"modelcompilation\",le=\"0.1\"} 50
workqueue_queue_duration_seconds_bucket{controller=\"c\",name=\"modelcompilation\",le=\"1\"} 99
workqueue_queue_duration_seconds_bucket{controller=\"c\",name=\"modelcompilation\",le=\"+Inf\"} 100
workqueue_queue_duration_seconds_bucket{controller=\"c\",name=\"devicepool\",le=\"0.1\"} 900
";

    #[test]
    fn writes_and_waits_are_found() {
        let metrics = Metrics(TEXT.to_owned());
        assert!((metrics.writes() - 9.0).abs() < 1e-9);
        let nothing = Metrics(String::new());
        assert!((metrics.wait(&nothing, 0.5) - 0.1).abs() < 1e-9);
        assert!((metrics.wait(&nothing, 0.99) - 1.0).abs() < 1e-9);
        assert!(metrics.wait(&nothing, 0.999).is_infinite());
        let earlier = Metrics(TEXT.replace("le=\"0.1\"} 50", "le=\"0.1\"} 49"));
        assert!((metrics.wait(&earlier, 0.99) - 0.1).abs() < 1e-9);
    }
}
