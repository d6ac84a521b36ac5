//! Sections: their headings, roles and lines.

use std::ops::Range;

use crate::lines::{Blocks, Kind};
use crate::role::Role;

#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// The line of the heading; `None` for the text before the first heading.
    pub heading: Option<usize>,
    pub level: u8,
    pub title: Range<usize>,
    /// The role of the heading itself.
    pub own: Option<Role>,
    /// The role of the heading, or else of the heading above it.
    pub role: Option<Role>,
    /// The lines up to the next heading.
    pub body: Range<usize>,
    /// The line after its last subsection.
    pub end: usize,
    pub parent: Option<usize>,
}

/// Splits a document into sections; the first one has no heading and may be empty. Also returns the index of the section
/// whose heading is the title.
pub(crate) fn sections(text: &str, blocks: &Blocks) -> (Vec<Section>, Option<usize>) {
    let count = blocks.lines.len();
    let mut sections = vec![Section {
        heading: None,
        level: 0,
        title: 0..0,
        own: None,
        role: None,
        body: 0..count,
        end: count,
        parent: None,
    }];
    let heads = blocks.lines.iter().enumerate().filter_map(|(number, line)| match &line.kind {
        Kind::Heading { level, text } => Some((number, *level, text.clone())),
        _ => None,
    });
    let heads: Vec<_> = heads.collect();
    let titled = titled(text, &heads);
    let mut above: Vec<usize> = Vec::new();
    for (number, level, title) in heads {
        let index = sections.len();
        sections[index - 1].body.end = number;
        while let Some(last) = above.last().copied().filter(|it| sections[*it].level >= level) {
            sections[last].end = number;
            above.pop();
        }
        let parent = above.last().copied();
        let is_title = titled && index == 1;
        let own = if is_title { None } else { Role::of(&text[title.clone()]) };
        let role = own.or_else(|| parent.and_then(|parent| sections[parent].role));
        let underlined = blocks.lines.get(number + 1).is_some_and(|it| it.kind == Kind::Underline);
        let body = number + 1 + usize::from(underlined)..count;
        let heading = Some(number);
        sections.push(Section { heading, level, title, own, role, body, end: count, parent });
        above.push(index);
    }
    (sections, titled.then_some(1))
}

/// Returns whether the first heading is the title: it is the only one of the first level, or it names no part of a plan.
fn titled(text: &str, heads: &[(usize, u8, Range<usize>)]) -> bool {
    let Some((_, 1, title)) = heads.first() else { return false };
    let alone = heads.iter().skip(1).all(|(_, level, _)| *level != 1);
    (alone && heads.len() > 1) || Role::of(&text[title.clone()]).is_none()
}
