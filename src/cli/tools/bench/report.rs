//! Figures of a load as a line for people and as JSON.

use serde_json::{Value, json};

use super::histogram::Outcome;

/// One line of figures.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was measured: `null`, `async`, `sync`, `broker`.
    pub broker: String,
    /// `send`, `one-way`, `batch 32`, `pull`, `e2e`.
    pub work: String,
    pub connections: usize,
    /// Requests in flight on each; `None` where nothing is answered.
    pub pipeline: Option<usize>,
    pub body_bytes: usize,
    pub outcome: Outcome,
    /// Messages per second of the null broker in the same load.
    pub null_rate: Option<f64>,
}

const WIDTHS: [usize; 10] = [7, 9, 7, 6, 10, 9, 9, 9, 9, 9];

/// The head of a table of rows.
pub fn head() -> String {
    let names = ["broker", "work", "c x f", "body", "msg/s", "MB/s", "p50 us", "p99 us", "p99.9 us", "max us"];
    format!("{} {:>7}", line(&names.map(str::to_owned)), "of null")
}

fn line(cells: &[String; 10]) -> String {
    let mut text = String::new();
    for (at, (cell, width)) in cells.iter().zip(WIDTHS).enumerate() {
        if at < 2 { text.push_str(&format!("{cell:<width$} ")) } else { text.push_str(&format!("{cell:>width$} ")) }
    }
    text.trim_end().to_owned()
}

impl Row {
    /// Share of the null broker's rate.
    pub fn share(&self) -> Option<f64> {
        self.null_rate.filter(|rate| *rate > 0.0).map(|rate| self.outcome.rate() / rate)
    }

    /// The row as a line of the table.
    pub fn text(&self) -> String {
        let load = self.pipeline.map_or_else(|| format!("{}x-", self.connections), |pipeline| format!("{}x{pipeline}", self.connections));
        let summary = self.outcome.latencies.summary();
        let us = |pick: fn(&super::histogram::Summary) -> f64| {
            summary.as_ref().map_or("-".to_owned(), |summary| format!("{:.1}", pick(summary)))
        };
        let cells = [
            self.broker.clone(),
            self.work.clone(),
            load,
            self.body_bytes.to_string(),
            format!("{:.0}", self.outcome.rate()),
            format!("{:.1}", self.outcome.mb_per_second()),
            us(|summary| summary.p50_us),
            us(|summary| summary.p99_us),
            us(|summary| summary.p999_us),
            us(|summary| summary.max_us),
        ];
        let share = self.share().map_or("-".to_owned(), |share| format!("{share:.2}"));
        let lost = if self.outcome.lost > 0 { format!("  {} lost", self.outcome.lost) } else { String::new() };
        format!("{} {share:>7}{lost}", line(&cells))
    }

    /// The row as JSON.
    pub fn json(&self) -> Value {
        let summary = self.outcome.latencies.summary();
        json!({
            "broker": self.broker,
            "work": self.work,
            "connections": self.connections,
            "inFlight": self.pipeline,
            "bodyBytes": self.body_bytes,
            "messages": self.outcome.messages,
            "requests": self.outcome.requests,
            "seconds": self.outcome.elapsed_ns as f64 / 1e9,
            "messagesPerSecond": self.outcome.rate(),
            "megabytesPerSecond": self.outcome.mb_per_second(),
            "p50Us": summary.map(|summary| summary.p50_us),
            "p99Us": summary.map(|summary| summary.p99_us),
            "p999Us": summary.map(|summary| summary.p999_us),
            "maxUs": summary.map(|summary| summary.max_us),
            "shareOfNull": self.share(),
            "lost": self.outcome.lost,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_rates_and_its_share() {
        let mut outcome = Outcome { messages: 500, body_bytes: 500_000, requests: 500, elapsed_ns: 1_000_000_000, ..Outcome::default() };
        outcome.latencies.record(20_000);
        let row = Row {
            broker: "sync".into(),
            work: "send".into(),
            connections: 16,
            pipeline: Some(4),
            body_bytes: 1000,
            outcome,
            null_rate: Some(1000.0),
        };
        let text = row.text();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words[..6], ["sync", "send", "16x4", "1000", "500", "0.5"]);
        assert_eq!(words.last(), Some(&"0.50"));
        assert_eq!(head().len(), text.len());
        let value = row.json();
        assert_eq!((&value["messagesPerSecond"], &value["shareOfNull"], &value["inFlight"]), (&json!(500.0), &json!(0.5), &json!(4)));
    }
}
