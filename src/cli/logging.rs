//! The log: standard error, or a file that is opened again on SIGHUP (so that whoever moved it away gets a new one).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use env_logger::{Builder, Target, WriteStyle};
use log::LevelFilter;
use parking_lot::Mutex;

use super::args::CommonArgs;

/// The log of this process.
#[derive(Clone, Default)]
pub struct Log {
    file: Option<LogFile>,
}

impl Log {
    /// Sets the logger up as the options and `RUST_LOG` say.
    ///
    /// # Errors
    /// The file cannot be opened: one line.
    pub fn install(args: &CommonArgs) -> Result<Self, String> {
        let mut builder = Builder::new();
        builder.filter_level(level(args.quiet, args.verbose)).parse_default_env().format_timestamp_millis();
        let file = args.log_file.as_deref().map(LogFile::open).transpose()?;
        if let Some(file) = &file {
            builder.target(Target::Pipe(Box::new(file.clone()))).write_style(WriteStyle::Never);
        }
        let _ = builder.try_init(); // an embedding program may have its own
        Ok(Self { file })
    }

    /// Opens the file again. Trouble goes to the old one.
    pub fn reopen(&self) {
        if let Some(file) = &self.file {
            match file.reopen() {
                Ok(()) => log::info!("log file opened again: path={}", file.path.display()),
                Err(error) => log::error!("log file cannot be opened again: path={} error={error}", file.path.display()),
            }
        }
    }
}

/// Level for a number of `-q` and `-v`.
fn level(quiet: u8, verbose: u8) -> LevelFilter {
    match (quiet, verbose) {
        (0, 0) => LevelFilter::Info,
        (1, _) => LevelFilter::Warn,
        (2.., _) => LevelFilter::Error,
        (0, 1) => LevelFilter::Debug,
        (0, 2..) => LevelFilter::Trace,
    }
}

#[derive(Clone)]
struct LogFile {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

impl LogFile {
    fn open(path: &Path) -> Result<Self, String> {
        let file = append_to(path).map_err(|error| format!("cannot open log file {}: {error}", path.display()))?;
        Ok(Self { path: path.to_owned(), file: Arc::new(Mutex::new(file)) })
    }

    fn reopen(&self) -> io::Result<()> {
        let fresh = append_to(&self.path)?;
        *self.file.lock() = fresh;
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.file.lock().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.lock().flush()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels() {
        assert_eq!(level(0, 0), LevelFilter::Info);
        assert_eq!((level(1, 0), level(3, 0)), (LevelFilter::Warn, LevelFilter::Error));
        assert_eq!((level(0, 1), level(0, 9)), (LevelFilter::Debug, LevelFilter::Trace));
    }

    #[test]
    fn a_moved_file_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = LogFile::open(&path).unwrap();
        file.write_all(b"one\n").unwrap();
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        file.write_all(b"two\n").unwrap();
        file.reopen().unwrap();
        file.clone().write_all(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("old")).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
        assert!(LogFile::open(folder.path()).is_err_and(|why| why.contains("cannot open log file")));
    }
}
