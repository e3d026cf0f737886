//! What to run.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use super::jobserver::Jobserver;

/// A command to run. No shell is involved; standard input is empty.
#[derive(Debug, Clone)]
pub struct Spec {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) env_removed: Vec<OsString>,
    pub(super) env_clear: bool,
    pub(super) cwd: Option<PathBuf>,
    pub(super) log: Option<PathBuf>,
    pub(super) log_cap: u64,
    pub(super) jobserver: Option<jobserver::Client>,
}

impl Spec {
    /// A program by path, relative to the command's directory, or by name, found through `PATH`.
    pub fn new(program: impl Into<OsString>) -> Self {
        Spec {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            env_removed: Vec::new(),
            env_clear: false,
            cwd: None,
            log: None,
            log_cap: 64 << 20,
            jobserver: None,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds or replaces an environment variable.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Leaves an environment variable out.
    pub fn env_remove(mut self, name: impl Into<OsString>) -> Self {
        self.env_removed.push(name.into());
        self
    }

    /// Starts from an empty environment instead of this process's.
    pub fn env_clear(mut self) -> Self {
        self.env_clear = true;
        self
    }

    /// Runs the command in this directory.
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = Some(dir.into());
        self
    }

    /// Writes all output to this file, which is created or emptied.
    pub fn log(mut self, path: impl Into<PathBuf>) -> Self {
        self.log = Some(path.into());
        self
    }

    /// Keeps at most so many bytes of output in the log, 64 MiB without this.
    pub fn log_cap(mut self, bytes: u64) -> Self {
        self.log_cap = bytes;
        self
    }

    /// Lets this make and those below it run as many jobs as the jobserver has tokens for.
    pub fn jobserver(mut self, jobserver: &Jobserver) -> Self {
        self.jobserver = Some(jobserver.client());
        self
    }

    /// Program and arguments, quoted for a shell.
    pub fn command_line(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.args);
        words.map(|word| quote(word)).collect::<Vec<_>>().join(" ")
    }

    /// Whether the program is a path to something that exists.
    pub(super) fn exists(&self) -> bool {
        let path = self.cwd.clone().unwrap_or_default().join(&self.program);
        self.program.as_encoded_bytes().contains(&b'/') && path.exists()
    }
}

/// The whole command as one would type it into a shell, with directory and environment.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cwd) = &self.cwd {
            write!(f, "cd {} && ", quote(cwd.as_os_str()))?;
        }
        if self.env_clear {
            f.write_str("env -i ")?;
        }
        if !self.env_clear && !self.env_removed.is_empty() {
            f.write_str("env ")?;
            for name in &self.env_removed {
                write!(f, "-u {} ", name.to_string_lossy())?;
            }
        }
        for (name, value) in &self.env {
            write!(f, "{}={} ", name.to_string_lossy(), quote(value))?;
        }
        f.write_str(&self.command_line())
    }
}

fn quote(word: &OsStr) -> String {
    shell_words::quote(&word.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_like_a_shell_command() {
        let spec = Spec::new("make").args(["-j2", "KCFLAGS=-O2 -g"]).arg("it's");
        assert_eq!(spec.command_line(), r#"make -j2 'KCFLAGS=-O2 -g' 'it'\''s'"#);
        assert_eq!(spec.to_string(), spec.command_line());
        let spec = Spec::new("x y").arg("").cwd("/a b").env_clear().env("A", "1 2");
        assert_eq!(spec.to_string(), "cd '/a b' && env -i A='1 2' 'x y' ''");
    }
}
