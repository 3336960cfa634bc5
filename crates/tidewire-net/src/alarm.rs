//! A deadline that is kept to some microseconds: the kernel's event queue alone waits whole milliseconds.

use std::io;
use std::time::{Duration, Instant};

use mio::{Registry, Token};

/// Wakes the event queue it is registered with shortly before a time.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    clock: Option<platform::Clock>,
    /// The time it is set to.
    set_to: Option<Instant>,
    /// There is none on this system, or the system refused one.
    is_missing: bool,
}

impl Alarm {
    /// Sets it to [`SPIN`] before this time, which is `wait` from now; whether it will wake the queue.
    pub(crate) fn set(
        &mut self,
        deadline: Instant,
        wait: Duration,
        registry: &Registry,
        token: Token,
    ) -> bool {
        if self.is_missing || self.set_to == Some(deadline) {
            return !self.is_missing;
        }
        let set = self.try_set(wait.saturating_sub(SPIN), registry, token);
        self.is_missing = set.is_err();
        self.set_to = set.is_ok().then_some(deadline);
        !self.is_missing
    }

    fn try_set(&mut self, wait: Duration, registry: &Registry, token: Token) -> io::Result<()> {
        let clock = match &mut self.clock {
            Some(clock) => clock,
            None => self.clock.insert(platform::Clock::new(registry, token)?),
        };
        clock.set(wait)
    }
}

/// The time before a deadline in which a shard does not sleep but looks again and again, because a wake-up
/// needs about that long. Where the system has no fine timer, the last millisecond.
pub const SPIN: Duration = platform::SPIN;

#[cfg(target_os = "linux")]
mod platform {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::time::Duration;

    use mio::unix::SourceFd;
    use mio::{Interest, Registry, Token};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    pub(super) const SPIN: Duration = Duration::from_micros(60);

    /// A timer of the kernel that an event queue can wait for (timerfd_create(2)).
    #[derive(Debug)]
    pub(super) struct Clock(OwnedFd);

    impl Clock {
        pub(super) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            let number = timer.as_raw_fd();
            registry.register(&mut SourceFd(&number), token, Interest::READABLE)?;
            Ok(Self(timer))
        }

        /// Each setting is reported once, as the queue reports edges: nothing has to be read.
        pub(super) fn set(&mut self, wait: Duration) -> io::Result<()> {
            // A wait of zero would turn it off.
            let wait = wait.max(Duration::from_nanos(1));
            let value = Itimerspec {
                it_interval: Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
                it_value: Timespec::try_from(wait).map_err(io::Error::other)?,
            };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &value)?;
            Ok(())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::io;
    use std::time::Duration;

    use mio::{Registry, Token};

    pub(super) const SPIN: Duration = Duration::from_millis(1);

    #[derive(Debug)]
    pub(super) struct Clock;

    impl Clock {
        pub(super) fn new(_registry: &Registry, _token: Token) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) fn set(&mut self, _wait: Duration) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}
