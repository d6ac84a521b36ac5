//! A loaded model: from its metadata to prompts, grammars and readers for its answers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::date::Date;
use crate::grammar::{GrammarRequest, Ids, Thinking, of_harmony, of_text};
use crate::guard::{Names, cut};
use crate::harmony::{self, MARKERS};
use crate::read;
use crate::reader::{Plan, Reader};
use crate::refusal::Refusal;
use crate::request::{Choice, Format, Input, Message, Request, Tool};
use crate::small;
use crate::style::{Style, THINK};
use crate::template::{self, Template};
use crate::turns::{tool_list, tool_words, turns};
use crate::{Facts, Piece, Sampling};

/// Options for loading a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelOptions {
    /// Ignores the template: the prompt is the text of the conversation, the answer is plain text.
    pub raw: bool,
    /// The current day, for prompts that contain it.
    pub today: Option<Date>,
    /// Ids of special tokens, by name. If they are known, grammars match marks by id, and a mark spelled with
    /// other tokens is not one.
    pub ids: HashMap<String, u32>,
}

impl ModelOptions {
    /// Looks up the ids of a model's special tokens with a tokenizer.
    ///
    /// Without them, a grammar cannot constrain the Harmony family in llama.cpp, which has some of its
    /// markers as ordinary tokens.
    #[must_use]
    pub fn with_ids(mut self, facts: &Facts, tokenise: impl Fn(&[Piece]) -> Vec<u32>) -> Self {
        self.ids = facts
            .specials
            .iter()
            .filter_map(|name| match tokenise(&[Piece::Special(name.clone())])[..] {
                [id] => Some((name.clone(), id)),
                _ => None,
            })
            .collect();
        self
    }
}

/// Why a model cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Special tokens are missing: get another file of the model, or use raw decoding.
    #[error(
        "this is a model of the gpt-oss family, and its vocabulary has no {}; get another file of it, or \
         load it with raw decoding", missing.join(", ")
    )]
    Harmony { missing: Vec<String> },
    /// The chat template is invalid: get another file of the model, or use raw decoding.
    #[error(
        "the model's chat template cannot be used: {reason}; get another file of the model, or load it with \
         raw decoding"
    )]
    Template { reason: String },
}

/// A model that can answer requests.
#[derive(Clone, Debug)]
pub struct Model {
    facts: Facts,
    family: Family,
    names: Names,
    ids: Ids,
    special: Arc<HashSet<u32>>,
    today: Option<Date>,
}

/// How prompts are rendered.
#[derive(Clone, Debug)]
enum Family {
    Harmony,
    /// A chat template; calls in its own style, or in the Hermes format with our instructions.
    Template(Box<Template>, Option<Style>),
    Raw,
}

/// A prompt with everything needed to generate the answer.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// What the model reads.
    pub pieces: Vec<Piece>,
    /// The grammar of the answer, in Lark notation for `llguidance`; `None` if unconstrained.
    pub grammar: Option<String>,
    pub sampling: Sampling,
    /// How the prompt was built: `harmony`, `template`, `small` or `raw`.
    pub profile: &'static str,
    /// What parts of the request the model does not see, described for the log.
    pub left_out: Vec<String>,
    /// Limit for the answer, if the profile has one.
    pub output_tokens_max: Option<u32>,
    pub(crate) plan: Plan,
}

impl Prompt {
    /// Creates the reader for the answer.
    pub fn reader(&self, model: &Model) -> Reader {
        Reader::new(&self.plan, Arc::clone(&model.special))
    }
}

impl Model {
    /// Determines how to prompt a model.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if the model cannot be used, unless `raw` is set.
    pub fn new(facts: Facts, options: ModelOptions) -> Result<Self, ModelError> {
        let names = Names::new(facts.specials.iter().chain(options.ids.keys()).cloned());
        let family = if options.raw { Family::Raw } else { find_family(&facts)? };
        let special = Arc::new(options.ids.values().copied().collect());
        Ok(Self { facts, family, names, ids: options.ids, special, today: options.today })
    }

    pub fn set_today(&mut self, today: Date) {
        self.today = Some(today);
    }

    /// Returns the metadata of the model's file.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the name of the model's family.
    pub fn family(&self) -> &'static str {
        match &self.family {
            Family::Harmony => "harmony",
            Family::Template(_, Some(style)) => style.format().name(),
            Family::Template(_, None) => "template",
            Family::Raw => "raw",
        }
    }

    /// Builds the prompt for a request.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`] if the request names a tool that it does not offer, requires a call without
    /// having tools, or is refused by the model's template.
    pub fn compose(&self, request: &Request) -> Result<Prompt, Refusal> {
        check_choice(request)?;
        let noted = with_note(request);
        let request = noted.as_ref().unwrap_or(request);
        match &self.family {
            Family::Harmony => Ok(self.compose_harmony(request)),
            Family::Template(template, _) if small::applies(&self.facts, request) => {
                small::compose(self, template, request)
            }
            Family::Template(template, style) => self.compose_template(template, *style, request),
            Family::Raw => Ok(compose_raw(request)),
        }
    }

    fn compose_harmony(&self, request: &Request) -> Prompt {
        let Request { messages, tools, .. } = request;
        let is_free = |tool: &&Tool| matches!(tool.input, Input::Text { .. });
        let free = tools.iter().filter(is_free).map(|tool| tool.name.clone()).collect();
        let wanted = GrammarRequest::new(request);
        Prompt {
            pieces: harmony::render(
                messages,
                tools,
                request.effort.as_deref(),
                self.today,
                &self.names,
            ),
            grammar: Some(of_harmony(&wanted, &self.ids)),
            sampling: request.sampling.unwrap_or(Sampling {
                temperature: 1.0,
                any_seed: true,
                ..Sampling::default()
            }),
            profile: "harmony",
            left_out: Vec::new(),
            output_tokens_max: None,
            plan: Plan::Harmony { free },
        }
    }

    fn compose_template(
        &self,
        template: &Template,
        style: Option<Style>,
        request: &Request,
    ) -> Result<Prompt, Refusal> {
        let mut can = template.can;
        can.tools = style.is_some();
        let offers = !request.tools.is_empty();
        let words = match style {
            Some(_) => String::new(),
            None => tool_words(&request.tools, &self.names),
        };
        let messages = turns(&request.messages, &words, can, &self.names);
        let tools = (offers && style.is_some()).then(|| tool_list(&request.tools, &self.names));
        let text = self.render(template, &messages, tools.as_ref(), request)?;
        let thinking = thinking(&text, template);
        let style = style.unwrap_or(Style::Hermes);
        let wanted = GrammarRequest::new(request);
        let plan = match wanted.callable().is_empty() {
            true => Plan::Plain { thinking },
            false => Plan::Dialect { style, tools: request.tools.clone(), thinking },
        };
        Ok(Prompt {
            pieces: cut(&text),
            grammar: of_text(&wanted, style, thinking, &self.ids),
            sampling: request.sampling.unwrap_or(SAMPLING),
            profile: "template",
            left_out: Vec::new(),
            output_tokens_max: None,
            plan,
        })
    }

    /// Renders turns with the model's template.
    pub(crate) fn render(
        &self,
        template: &Template,
        messages: &[serde_json::Value],
        tools: Option<&serde_json::Value>,
        request: &Request,
    ) -> Result<String, Refusal> {
        let effort = request.effort.as_deref();
        // A small model has no tokens to spare for it.
        let thinking =
            !matches!(effort, Some("none" | "minimal")) && !small::applies(&self.facts, request);
        let effort = harmony::known_effort(effort);
        let input = template::Input { messages, tools, today: self.today, thinking, effort };
        template.render(&input).map_err(|reason| Refusal::Invalid {
            message: format!("the model's chat template does not take this conversation: {reason}"),
            param: None,
        })
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn ids(&self) -> &Ids {
        &self.ids
    }
}

/// Sampling parameters if neither the client nor the family sets them.
const SAMPLING: Sampling = Sampling {
    temperature: 0.7,
    top_p: 0.95,
    top_k: 40,
    min_p: 0.0,
    repeat_penalty: 1.0,
    repeat_tokens: 64,
    seed: 0,
    any_seed: true,
};

/// The template for files without one whose vocabulary has the ChatML marks.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + \
    message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ \
    '<|im_start|>assistant\n' }}{% endif %}";

/// The template for files with neither.
const PLAIN: &str = "{{ bos_token }}{% for message in messages %}{{ message['role'].capitalize() + ': ' + \
    message['content'] + '\n\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";

fn find_family(facts: &Facts) -> Result<Family, ModelError> {
    let has = |name: &str| facts.specials.iter().any(|special| special == name);
    let source = facts.template.as_deref().filter(|source| !source.trim().is_empty());
    if facts.architecture == "gpt-oss"
        || source.is_some_and(|source| source.contains("<|channel|>"))
    {
        let missing = MARKERS.iter().filter(|name| !has(name)).map(|name| (*name).to_owned());
        let missing: Vec<_> = missing.collect();
        return match missing.is_empty() {
            true => Ok(Family::Harmony),
            false => Err(ModelError::Harmony { missing }),
        };
    }
    let source = match source {
        Some(source) => source,
        None if has("<|im_start|>") => CHATML,
        None => PLAIN,
    };
    let (begin, end) = (facts.begin.as_deref(), facts.end.as_deref());
    let template = Template::new(source, begin.unwrap_or_default(), end.unwrap_or_default());
    let template = template.map_err(|reason| ModelError::Template { reason })?;
    let style = Style::from_template(&template);
    Ok(Family::Template(Box::new(template), style))
}

/// Tells whether a token name is a mark known here, which never stands for text.
pub fn is_mark(name: &str) -> bool {
    let mut think = THINK.iter().flat_map(|(open, close)| [open, close]);
    MARKERS.contains(&name)
        || think.any(|mark| *mark == name)
        || Style::ALL.iter().any(|style| style.marks().contains(&name))
        || name.len() > 4 && name.starts_with("<|") && name.ends_with("|>")
}

/// Returns how an answer to this prompt begins.
pub(crate) fn thinking(prompt: &str, template: &Template) -> Thinking {
    let end = prompt.trim_end();
    for (open, close) in THINK {
        if end.ends_with(open) {
            return Thinking::Open(close);
        }
        // The prompt contains an empty reasoning section.
        if end.ends_with(close) {
            return Thinking::Never;
        }
    }
    let marks = THINK.iter().find(|(open, _)| template.source().contains(open));
    match marks {
        Some((open, close)) => Thinking::May(open, close),
        None => Thinking::Never,
    }
}

fn check_choice(request: &Request) -> Result<(), Refusal> {
    let refuse =
        |message: String| Err(Refusal::Invalid { message, param: Some("tool_choice".to_owned()) });
    match &request.choice {
        Choice::Required if request.tools.is_empty() => {
            refuse("a call is required, and no tool is offered".to_owned())
        }
        Choice::Named(name) if !request.tools.iter().any(|tool| tool.name == *name) => {
            refuse(format!("the tool `{name}` must be called, and is not among those on offer"))
        }
        _ => Ok(()),
    }
}

/// Adds a note to the instructions that something was left out of the conversation; `None` if nothing was.
fn with_note(request: &Request) -> Option<Request> {
    let is_noted = |message: &Message| match message {
        Message::System(text)
        | Message::Developer(text)
        | Message::User(text)
        | Message::Assistant(text)
        | Message::Commentary(text)
        | Message::Output { text, .. } => read::is_left_out(text),
        Message::Reasoning(_) | Message::Call { .. } => false,
    };
    if !request.messages.iter().any(is_noted) {
        return None;
    }
    let is_rule = |message: &Message| matches!(message, Message::System(_) | Message::Developer(_));
    let rules = request.messages.iter().take_while(|message| is_rule(message)).count();
    let mut request = request.clone();
    request.messages.insert(rules, Message::Developer(LEFT_OUT.to_owned()));
    Some(request)
}

/// The note about images, audio and files that the model cannot read.
const LEFT_OUT: &str = "Pictures, recordings and files were left out of this conversation, because you cannot open \
    them. Where one was, a note in brackets says so. If the answer depends on one, say that you cannot see it.";

fn compose_raw(request: &Request) -> Prompt {
    let said = request.messages.iter().filter_map(|message| match message {
        Message::System(text)
        | Message::Developer(text)
        | Message::User(text)
        | Message::Assistant(text)
        | Message::Commentary(text)
        | Message::Output { text, .. } => Some(text.as_str()),
        Message::Reasoning(_) | Message::Call { .. } => None,
    });
    let text = said.collect::<Vec<_>>().join("\n\n");
    let mut left_out = Vec::new();
    if !request.tools.is_empty() {
        left_out.push(format!("{} tools: raw decoding has none", request.tools.len()));
    }
    if request.format != Format::Text {
        left_out.push("the form of the answer: raw decoding has none".to_owned());
    }
    Prompt {
        pieces: vec![Piece::Text(text)],
        grammar: None,
        sampling: request.sampling.unwrap_or(SAMPLING),
        profile: "raw",
        left_out,
        output_tokens_max: None,
        plan: Plan::Raw,
    }
}
