//! Whether and when a failed request is retried.
//!
//! Two kinds of retry share one back-off and one deadline. A request that got no response is retried silently
//! a few times, after short delays; after that, and whenever an answer breaks off, the user is told. The
//! delay grows over both kinds, so a dead endpoint gets a dozen requests in two minutes and not the product
//! of both limits. An endpoint that accepts requests and stays silent uses up the deadline by its silence, so
//! it is retried only if that did not take too long. A refused connection is retried for seconds only, for a
//! server that is being restarted, and the user is told from the first failure on.

use std::time::Duration;

use protocol::error::{ErrorClass, RetryAdvice, SampleError};
use stdx::Rng;

/// How long one sampling request may be retried, from its first failure.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// The same for a refused connection: waiting rarely helps, and the user, who has to start the server or fix
/// the address, wants to know soon.
pub const DEADLINE_REFUSED: Duration = Duration::from_secs(10);
/// The first delay; it doubles with every failure.
pub const DELAY_FIRST: Duration = Duration::from_millis(200);
/// The first delay after a rate limit, which takes longer to clear than a fault.
pub const DELAY_FIRST_LIMITED: Duration = Duration::from_secs(1);
/// The longest delay before a silent retry.
pub const QUIET_DELAY_MAX: Duration = Duration::from_secs(2);
/// How long a request may be retried silently.
pub const QUIET_TIME_MAX: Duration = Duration::from_secs(5);
/// The longest delay of our own choice.
pub const DELAY_MAX: Duration = Duration::from_secs(30);

/// The number of retries, from the provider's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// Consecutive silent retries of a request that got no response.
    pub request_max: u32,
    /// Retries that the user is told about.
    pub stream_max: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Retry after `delay`, silently.
    Quiet {
        /// Grows with every failure.
        delay: Duration,
    },
    /// Tell the user, then retry after `delay`.
    Notice {
        /// The number of this retry, from 1.
        attempt: u32,
        delay: Duration,
    },
    GiveUp,
}

/// The failures of one sampling request so far.
#[derive(Clone, Debug)]
pub struct Retry {
    limits: RetryLimits,
    quiet_used: u32,
    notices_used: u32,
    failures: u32,
    first_request_ms: u64,
    first_failure_ms: Option<u64>,
}

impl Retry {
    /// Starts without failures, for a request first made at `now_ms`.
    pub fn new(limits: RetryLimits, now_ms: u64) -> Self {
        Self {
            limits,
            quiet_used: 0,
            notices_used: 0,
            failures: 0,
            first_request_ms: now_ms,
            first_failure_ms: None,
        }
    }

    /// Returns the number of failed attempts.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Decides about another failure, which happened at `now_ms`.
    pub fn decide(&mut self, error: &SampleError, now_ms: u64, rng: &mut Rng) -> Decision {
        let first = match error.class {
            ErrorClass::RateLimited => DELAY_FIRST_LIMITED,
            _ => DELAY_FIRST,
        };
        let delay = error.retry_after.unwrap_or_else(|| backoff(first, self.failures, rng));
        self.failures += 1;
        let begun = match error.class {
            // Connecting can take as long as staying silent.
            ErrorClass::Silent | ErrorClass::Unreachable => self.first_request_ms,
            _ => *self.first_failure_ms.get_or_insert(now_ms),
        };
        let deadline = match error.class {
            ErrorClass::ConnectionRefused => DEADLINE_REFUSED,
            _ => DEADLINE,
        };
        let ends = Duration::from_millis(now_ms.saturating_sub(begun)).saturating_add(delay);
        if !error.can_retry() || ends > deadline {
            return Decision::GiveUp;
        }
        let unanswered = matches!(
            error.class,
            ErrorClass::Unreachable | ErrorClass::ServerFault | ErrorClass::Overloaded
        );
        let waited = Duration::from_millis(now_ms.saturating_sub(self.first_request_ms));
        let short = delay <= QUIET_DELAY_MAX && waited <= QUIET_TIME_MAX;
        if unanswered && short && self.quiet_used < self.limits.request_max {
            self.quiet_used += 1;
            return Decision::Quiet { delay };
        }
        if self.notices_used < self.limits.stream_max {
            self.notices_used += 1;
            self.quiet_used = 0;
            return Decision::Notice { attempt: self.notices_used, delay };
        }
        Decision::GiveUp
    }
}

/// Says whether and when another attempt makes sense, after the automatic retries.
pub fn advice(error: &SampleError) -> RetryAdvice {
    match (error.can_retry(), error.retry_after) {
        // To the millisecond, as the log has it, and never too early.
        (_, Some(delay)) => {
            let ms = delay.as_nanos().div_ceil(1_000_000);
            RetryAdvice::After(Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)))
        }
        (true, None) => RetryAdvice::Later,
        (false, None) if error.class == ErrorClass::Overloaded => RetryAdvice::Later,
        (false, None) => RetryAdvice::Never,
    }
}

/// Doubles from `first` to [`DELAY_MAX`], with 10 % jitter.
fn backoff(first: Duration, failures: u32, rng: &mut Rng) -> Duration {
    let full = first.saturating_mul(1 << failures.min(16)).min(DELAY_MAX);
    full.mul_f64(0.9 + 0.2 * (rng.below(1_000) as f64 / 1_000.0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::error::{ErrorClass, SampleError};
    use stdx::Rng;

    use super::{DEADLINE, DEADLINE_REFUSED, Decision, Retry, RetryLimits};

    /// Plays failures that take `attempt_ms` each, and writes one letter per decision: `q` quiet, `N` notice,
    /// `x` give up.
    fn play(class: ErrorClass, limits: (u32, u32), attempt_ms: u64) -> (String, u64) {
        let mut retry = Retry::new(RetryLimits { request_max: limits.0, stream_max: limits.1 }, 0);
        let (mut rng, mut now, mut out) = (Rng::new(1), 0, String::new());
        loop {
            now += attempt_ms;
            match retry.decide(&SampleError::new(class, "x"), now, &mut rng) {
                Decision::Quiet { delay } => {
                    out.push('q');
                    now += delay.as_millis() as u64;
                }
                Decision::Notice { delay, .. } => {
                    out.push('N');
                    now += delay.as_millis() as u64;
                }
                Decision::GiveUp => return (out + "x", now),
            }
        }
    }

    #[track_caller]
    fn check(class: ErrorClass, limits: (u32, u32), want: &str) {
        assert_eq!(play(class, limits, 1).0, want);
    }

    #[test]
    fn sequences() {
        check(ErrorClass::Disconnected, (4, 5), "NNNNNx");
        check(ErrorClass::ServerFault, (1, 1), "qNqx");
        check(ErrorClass::ServerFault, (0, 0), "x");
        check(ErrorClass::Disconnected, (4, 0), "x");
        check(ErrorClass::RateLimited, (4, 2), "NNx");
        check(ErrorClass::Credentials, (4, 5), "x");
        check(ErrorClass::ContextFull, (4, 5), "x");
        check(ErrorClass::ConnectionRefused, (4, 5), "NNNNNx");
        check(ErrorClass::ConnectionRefused, (100, 100), "NNNNNx");
        check(ErrorClass::ConnectionRefused, (4, 1), "Nx");
        // With the default limits the user is told about every long wait, and there are ten requests, not
        // thirty.
        check(ErrorClass::ServerFault, (4, 5), "qqqqNNNNNx");
    }

    #[test]
    fn overloads() {
        let busy = SampleError::new(ErrorClass::Overloaded, "busy");
        for (error, again) in [
            (busy.clone(), false),
            (busy.clone().with_status(200), false),
            (busy.with_status(503), true),
        ] {
            assert_eq!(error.can_retry(), again, "{error:?}");
            assert_eq!(super::advice(&error), super::RetryAdvice::Later);
        }
    }

    #[test]
    fn the_deadline_ends_it_whatever_the_limits() {
        for class in [ErrorClass::Unreachable, ErrorClass::ServerFault, ErrorClass::Disconnected] {
            let (_, ended) = play(class, (100, 100), 10);
            assert!(ended <= DEADLINE.as_millis() as u64 + 10, "{class:?} {ended}");
        }
    }

    /// A connection attempt that takes twenty seconds.
    #[test]
    fn slow_failures_are_reported_at_once() {
        let (seen, ended) = play(ErrorClass::Unreachable, (4, 5), 20_000);
        assert_eq!(seen, "NNNNNx");
        assert!(ended <= DEADLINE.as_millis() as u64 + 20_000, "{ended}");
    }

    #[test]
    fn silence_uses_up_the_deadline() {
        for (attempt_s, want) in [(0, "NNNNNx"), (30, "NNNx"), (100, "Nx"), (300, "x")] {
            let (seen, ended) = play(ErrorClass::Silent, (4, 5), attempt_s * 1_000);
            assert_eq!(seen, want, "{attempt_s}");
            let longest = DEADLINE.as_secs() + attempt_s;
            assert!(ended <= longest * 1_000, "{attempt_s}: {ended}");
        }
    }

    #[test]
    fn refused_connections_give_up_soon() {
        let (_, ended) = play(ErrorClass::ConnectionRefused, (100, 100), 1);
        assert!(ended <= DEADLINE_REFUSED.as_millis() as u64, "{ended}");
    }

    #[test]
    fn the_delay_requested_by_the_provider_is_respected() {
        for seconds in [0, 2, 60] {
            let error = SampleError::new(ErrorClass::RateLimited, "x")
                .with_retry_after(Some(Duration::from_secs(seconds)));
            let mut retry = Retry::new(RetryLimits { request_max: 4, stream_max: 5 }, 0);
            let decision = retry.decide(&error, 0, &mut Rng::new(3));
            let delay = Duration::from_secs(seconds);
            assert_eq!(decision, Decision::Notice { attempt: 1, delay });
        }
        let hour = SampleError::new(ErrorClass::RateLimited, "x")
            .with_retry_after(Some(Duration::from_secs(3600)));
        let mut retry = Retry::new(RetryLimits { request_max: 4, stream_max: 5 }, 0);
        assert_eq!(retry.decide(&hour, 0, &mut Rng::new(3)), Decision::GiveUp);
    }
}
