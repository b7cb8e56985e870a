//! A bar on a terminal; nothing where standard error is none.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::store::check::Progress;

/// Bytes done, speed and the time that is left, by what is being done.
const TEMPLATE: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";

/// A bar; goes when it is dropped.
pub(super) struct Bar {
    bar: Option<ProgressBar>,
    what: &'static str,
}

impl Bar {
    /// A bar that shows itself with the first step.
    pub(super) fn new() -> Self {
        Self { bar: None, what: "" }
    }

    /// Shows how far the work is.
    pub(super) fn show(&mut self, step: Progress) {
        if step.what != self.what {
            self.begin(step);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(step.done);
        }
    }

    fn begin(&mut self, step: Progress) {
        self.clear();
        self.what = step.what;
        if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(step.total), ProgressDrawTarget::stderr());
            bar.set_style(ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message(step.what);
            self.bar = Some(bar);
        }
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}
