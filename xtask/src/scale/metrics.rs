//! Metrics, as a Prometheus would read them.

use anyhow::Result;

use super::api::request;

/// The text of `/metrics` at one moment.
pub struct Metrics(String);

/// One line of it.
pub struct Sample<'a> {
    labels: &'a str,
    /// Its value.
    pub value: f64,
}

impl<'a> Sample<'a> {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        loop {
            let (key, after) = rest.split_once("=\"")?;
            let (value, after) = after.split_once('"')?;
            if key.trim_start_matches(',') == name {
                return Some(value);
            }
            rest = after;
        }
    }
}

impl Metrics {
    /// Those in a text.
    pub fn of(text: String) -> Self {
        Self(text)
    }

    /// Reads them off `address`.
    pub fn read(address: &str) -> Result<Self> {
        Ok(Self(request(address, "GET", "/metrics", "")?))
    }

    /// Samples of a metric.
    pub fn samples<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Sample<'a>> {
        self.0.lines().filter_map(move |line| {
            let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
            Some(Sample { labels, value: value.parse().ok()? })
        })
    }

    /// The sum of a metric over the samples whose `label` has `value`.
    pub fn sum(&self, name: &str, label: &str, value: &str) -> f64 {
        let samples = self.samples(name).filter(|sample| sample.label(label) == Some(value));
        samples.map(|sample| sample.value).sum()
    }

    /// Requests of the operator that change something, other than those for the lease.
    pub fn writes(&self) -> f64 {
        let writes = ["POST", "PUT", "PATCH", "DELETE"];
        let sum = |method| self.sum("rest_client_requests_total", "method", method);
        writes.into_iter().map(sum).sum()
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
            .filter(|sample| sample.label("name") == Some("modelcompilation"))
            .filter_map(|sample| {
                let end = sample.label("le")?;
                Some((end.parse().unwrap_or(f64::INFINITY), sample.value))
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

    #[test]
    fn labels_are_found_by_their_whole_name() {
        let sample = Sample { labels: "subresource=\"status\",resource=\"jobs\"", value: 1.0 };
        assert_eq!(sample.label("resource"), Some("jobs"));
        assert_eq!(sample.label("source"), None);
    }
}
