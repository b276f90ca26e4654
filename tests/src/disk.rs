//! Disks that are small, slow or broken, under one node.
//!
//! A [`SmallDisk`] is a file system in memory of its own, which can be made as small as what lies
//! on it: then it is full. [`FaultyDisk`] has `strace` stand between a running process and the
//! kernel, and delay or refuse its syncs.
//!
//! # Caveats
//!
//! - Both need root, or what stands for it in a container; the first `mount`, the second `strace`
//!   (Debian's packages of these names).
//! - A traced process stops at each of its system calls: it is slower in everything.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::statvfs;
use rustix::process::{Pid, Signal, kill_process};

use crate::wait::{DEADLINE, wait_for};

/// What is left of a full disk: less than the next write takes.
const LEFT_BYTES: u64 = 8 << 10;

/// A file system of its own. Dropped, it goes with what is on it; where the test has failed, that
/// is copied beside it before.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
    bytes: u64,
}

impl SmallDisk {
    /// A disk of so many bytes at `path`, which is made.
    ///
    /// # Panics
    /// The machine does not permit it.
    #[must_use]
    pub fn mount(path: &Path, bytes: u64) -> Self {
        fs::create_dir_all(path).expect("a folder");
        let size = format!("size={bytes}");
        run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs"], path);
        Self {
            path: path.to_owned(),
            bytes,
        }
    }

    /// Makes it as small as what lies on it.
    ///
    /// # Panics
    /// It does not say how full it is.
    pub fn fill(&self) {
        let now = statvfs(&self.path).expect("a file system");
        let used = (now.f_blocks - now.f_bfree) * now.f_frsize;
        self.resize(used + LEFT_BYTES);
    }

    /// Gives it its whole size again.
    pub fn widen(&self) {
        self.resize(self.bytes);
    }

    /// Has nothing be written to it any more.
    pub fn protect(&self) {
        run("mount", &["-o", "remount,ro"], &self.path);
    }

    /// Has it be written to again.
    pub fn unprotect(&self) {
        run("mount", &["-o", "remount,rw"], &self.path);
    }

    fn resize(&self, bytes: u64) {
        let size = format!("remount,size={bytes}");
        run("mount", &["-o", &size], &self.path);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut kept = self.path.clone().into_os_string();
            kept.push(".kept");
            // What failed first is what matters.
            let _ = Command::new("cp")
                .arg("-a")
                .arg(&self.path)
                .arg(&kept)
                .status();
        }
        // Whoever works there yet keeps it until then.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

fn run(program: &str, arguments: &[&str], path: &Path) {
    let output = Command::new(program).args(arguments).arg(path).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {} {}: {}\nThis needs root.",
        arguments.join(" "),
        path.display(),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// What is wrong with a disk.
#[derive(Clone, Copy, Debug)]
pub enum DiskFault {
    /// Each sync takes so much longer.
    Slow(Duration),
    /// Each sync fails.
    Failing,
}

/// A fault between a process and its disk, for as long as this lives.
#[derive(Debug)]
pub struct FaultyDisk {
    process: u32,
    strace: Child,
}

impl FaultyDisk {
    /// Brings it in; it is there when this returns.
    ///
    /// # Panics
    /// `strace` is not there, or may not do it.
    pub async fn under(process: u32, fault: DiskFault) -> Self {
        let injected = match fault {
            DiskFault::Slow(delay) => format!("delay_enter={}", delay.as_micros()),
            DiskFault::Failing => "error=EIO".to_owned(),
        };
        let syncs = "fdatasync,fsync,sync_file_range";
        let strace = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-e"])
            .arg(format!("trace={syncs}"))
            .args(["-e", &format!("inject={syncs}:{injected}")])
            .args(["-p", &process.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let strace = strace.unwrap_or_else(|error| panic!("strace: {error}; install it"));
        let mut disk = Self { process, strace };
        wait_for("strace holds every thread", DEADLINE, async || {
            let ended = disk.strace.try_wait().expect("a child");
            assert_eq!(ended, None, "strace cannot hold process {process}");
            all_traced(process).then_some(())
        })
        .await;
        disk
    }

    /// Takes it out, and waits until it is gone.
    pub async fn mend(self) {
        let process = self.process;
        drop(self);
        wait_for("strace has let go", DEADLINE, async || {
            (!is_traced(&format!("/proc/{process}/status"))).then_some(())
        })
        .await;
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        let pid = i32::try_from(self.strace.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // Asked to end, it lets go of what it holds first; one that has ended does not hear.
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.strace.wait();
    }
}

/// Whether each thread of a process is traced.
fn all_traced(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return false;
    };
    let mut threads = threads.filter_map(Result::ok);
    threads.all(|thread| is_traced(&thread.path().join("status").display().to_string()))
}

fn is_traced(status: &str) -> bool {
    let status = fs::read_to_string(status).unwrap_or_default();
    let tracer = status.lines().find_map(|it| it.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}
