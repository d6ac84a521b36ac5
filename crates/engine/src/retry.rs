//! Whether and when a failed request is made again.
//!
//! Two kinds of retry share one back-off and one deadline. A request that never got an answer is
//! repeated quietly a few times, after short waits; after that, and whenever an answer breaks off, the user is
//! told. The delay grows over both kinds, so a dead endpoint sees a dozen requests in two minutes and not
//! the product of both limits. An endpoint that takes requests and says nothing uses the time up by its
//! silence, so it is asked again only if it was not waited for that long. An address where nobody listens is a matter of seconds, for a server that is
//! just being started again, and the user is told from the first failure on.

use std::time::Duration;

use protocol::error::{ErrorClass, RetryAdvice, SampleError};
use stdx::Rng;

/// How long one sampling request may be retried, counted from its first failure.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// The same where the connection is refused: waiting rarely helps, and whoever has to start the server or mend
/// the address wants to know soon.
pub const DEADLINE_REFUSED: Duration = Duration::from_secs(10);
/// The first delay; it doubles with every failure.
pub const DELAY_FIRST: Duration = Duration::from_millis(200);
/// The first delay after a rate limit, which passes slower than a fault.
pub const DELAY_FIRST_LIMITED: Duration = Duration::from_secs(1);
/// The longest wait before a retry that the user is not told about.
pub const QUIET_DELAY_MAX: Duration = Duration::from_secs(2);
/// How long a request may have been tried without the user being told.
pub const QUIET_TIME_MAX: Duration = Duration::from_secs(5);
/// The longest delay that is our own choice.
pub const DELAY_MAX: Duration = Duration::from_secs(30);

/// How often to retry, from the provider's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimits {
    /// Quiet retries in a row of a request that got no answer.
    pub request_max: u32,
    /// Retries that the user is told about.
    pub stream_max: u32,
}

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Make the request again after `delay` and say nothing.
    Quiet {
        /// How long to wait.
        delay: Duration,
    },
    /// Tell the user, then make it again after `delay`.
    Notice {
        /// Which such retry this is, from 1.
        attempt: u32,
        /// How long to wait.
        delay: Duration,
    },
    /// Give up.
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
    /// Starts with no failures, for a request that is first made at `now_ms`.
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

    /// Returns how many attempts have failed.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Decides about one more failure, which happened at `now_ms`.
    pub fn decide(&mut self, error: &SampleError, now_ms: u64, rng: &mut Rng) -> Decision {
        let first = match error.class {
            ErrorClass::RateLimited => DELAY_FIRST_LIMITED,
            _ => DELAY_FIRST,
        };
        let delay = error.retry_after.unwrap_or_else(|| backoff(first, self.failures, rng));
        self.failures += 1;
        let begun = match error.class {
            // Connecting can take as long as being silent.
            ErrorClass::Silent | ErrorClass::Unreachable => self.first_request_ms,
            _ => *self.first_failure_ms.get_or_insert(now_ms),
        };
        let deadline = match error.class {
            ErrorClass::ConnectionRefused => DEADLINE_REFUSED,
            _ => DEADLINE,
        };
        let ends = Duration::from_millis(now_ms.saturating_sub(begun)).saturating_add(delay);
        if !error.class.can_retry() || ends > deadline {
            return Decision::GiveUp;
        }
        let unanswered = matches!(error.class, ErrorClass::Unreachable | ErrorClass::ServerFault);
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

/// Says whether and when it makes sense to try again, once retrying here has ended.
pub fn advice(error: &SampleError) -> RetryAdvice {
    match (error.class.can_retry(), error.retry_after) {
        (_, Some(delay)) => RetryAdvice::After(delay),
        (true, None) => RetryAdvice::Later,
        (false, None) if error.class == ErrorClass::Overloaded => RetryAdvice::Later,
        (false, None) => RetryAdvice::Never,
    }
}

/// Doubles from `first` to [`DELAY_MAX`], a tenth up or down at random.
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

    /// Plays failures, each taking `attempt_ms` to come, and writes one letter a decision:
    /// `q` quiet, `N` notice, `x` give up.
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
        // With the default limits the user hears of every long wait, and there are ten requests, not thirty.
        check(ErrorClass::ServerFault, (4, 5), "qqqqNNNNNx");
    }

    #[test]
    fn the_deadline_ends_it_whatever_the_limits() {
        for class in [ErrorClass::Unreachable, ErrorClass::ServerFault, ErrorClass::Disconnected] {
            let (_, ended) = play(class, (100, 100), 10);
            assert!(ended <= DEADLINE.as_millis() as u64 + 10, "{class:?} {ended}");
        }
    }

    /// A connection that is made in twenty seconds or not at all.
    #[test]
    fn slow_failures_are_told_at_once() {
        let (seen, ended) = play(ErrorClass::Unreachable, (4, 5), 20_000);
        assert_eq!(seen, "NNNNNx");
        assert!(ended <= DEADLINE.as_millis() as u64 + 20_000, "{ended}");
    }

    #[test]
    fn silence_uses_the_time_up() {
        for (attempt_s, want) in [(0, "NNNNNx"), (30, "NNNx"), (100, "Nx"), (300, "x")] {
            let (seen, ended) = play(ErrorClass::Silent, (4, 5), attempt_s * 1_000);
            assert_eq!(seen, want, "{attempt_s}");
            let longest = DEADLINE.as_secs() + attempt_s;
            assert!(ended <= longest * 1_000, "{attempt_s}: {ended}");
        }
    }

    #[test]
    fn where_nobody_listens_it_is_over_soon() {
        let (_, ended) = play(ErrorClass::ConnectionRefused, (100, 100), 1);
        assert!(ended <= DEADLINE_REFUSED.as_millis() as u64, "{ended}");
    }

    #[test]
    fn the_providers_word_on_the_delay_is_kept_exactly() {
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
