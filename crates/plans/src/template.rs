//! The beginning of a new plan.

use crate::time::Time;
use crate::words::{self, TextError};

/// Formats a new plan. Parts that must be filled in are comments, so that a check of the plan reports them as missing.
pub fn template(title: &str, time: Time) -> Result<String, TextError> {
    let title = words::one_line(title)?;
    let (date, clock) = (time.date(), time.clock());
    Ok(format!(
        "# {title}

Status: ({time}) written, nothing is done yet

## Purpose

<!-- What people can do afterwards that they cannot do now, and how they see that it works. -->

## Success criteria

<!-- One line for each: what has to hold, so that a command or a look at a file can tell. -->

## Steps

<!-- One line for each: `- [ ] what to do`. A step is ticked with what shows that it is done below it:
  - evidence: `command` exits 0
  - evidence: `path` sha256 `digest`
-->

## Progress log

| date | time | what | change |
| --- | --- | --- | --- |
| {date} | {clock} | plan written |  |

## Surprises

None yet.

## Decisions

None yet.

## Outcome

Not finished yet.
"
    ))
}
