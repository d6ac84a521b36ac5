//! Headers of model files: valid ones are parsed, and damage is always detected and harmless.

use std::fs;
use std::sync::LazyLock;

use infer::gguf::{GgufError, Header, open, read};
use proptest::prelude::*;
use testkit::gguf::{Gguf, Value, gpt_oss, llama};

/// Two files, made once.
static FILES: LazyLock<[Vec<u8>; 2]> =
    LazyLock::new(|| [llama(1).to_bytes(), gpt_oss(1).to_bytes()]);

fn header(bytes: &[u8]) -> Result<Header, GgufError> {
    read(bytes, bytes.len() as u64)
}

#[test]
fn headers_are_parsed() {
    let bytes = llama(1).context_tokens(2048).to_bytes();
    let Header { facts, shape } = header(&bytes).unwrap();
    assert_eq!((facts.architecture.as_str(), facts.name.as_deref()), ("llama", Some("Tiny")));
    assert_eq!(facts.context_tokens, 2048);
    assert_eq!((facts.begin.as_deref(), facts.end.as_deref()), (None, Some("<|im_end|>")));
    assert!(facts.specials.iter().any(|name| name == "<|im_start|>"), "{:?}", facts.specials);
    assert!(facts.template.as_ref().is_some_and(|template| template.contains("<|im_start|>")));
    // Two layers, two heads of 16 for keys and values, two bytes each.
    assert_eq!(shape.token_bytes, 2 * 2 * (16 + 16) * 2);
    assert_eq!(shape.vocabulary, 256 + 4 + 5);
    assert!(facts.parameters > 50_000 && facts.parameters < shape.file_bytes / 4, "{facts:?}");

    let facts = header(&gpt_oss(1).to_bytes()).unwrap().facts;
    assert_eq!((facts.architecture.as_str(), facts.specials.len()), ("gpt-oss", 9));

    let mut model = llama(1);
    model.set("tokenizer.ggml.add_bos_token", Value::Bool(true));
    let facts = header(&model.to_bytes()).unwrap().facts;
    assert_eq!(facts.begin.as_deref(), Some("<|im_start|>"));
}

#[track_caller]
fn check(what: &str, spoil: impl Fn(&mut Gguf), want: &str) {
    for mut model in [llama(1), gpt_oss(1)] {
        spoil(&mut model);
        let error = header(&model.to_bytes()).expect_err(what).to_string();
        assert!(error.contains(want), "{what}: {error}");
    }
}

/// Sets an architecture-specific number.
fn set(name: &'static str, value: u32) -> impl Fn(&mut Gguf) {
    move |model| {
        for architecture in ["llama", "gpt-oss"] {
            model.set(&format!("{architecture}.{name}"), Value::U32(value));
        }
    }
}

#[test]
fn headers_that_would_abort_llama_cpp_are_refused() {
    check("no layers", set("block_count", 0), "block_count` is 0");
    check("many layers", set("block_count", 513), "block_count` is 513");
    check("no context", set("context_length", 0), "context_length` is 0");
    check("too few experts", set("expert_used_count", 9), "expert_used_count");
    check("too many experts", set("expert_count", 5000), "expert_used_count");
    check("odd groups", set("expert_group_count", 3), "expert_group_count");
    check("no interval", set("full_attention_interval", 0), "full_attention_interval");
    check("no group", set("experts_per_group", 0), "experts_per_group");
    check("no width", set("embedding_length", 0), "embedding_length` is 0");
    check("more heads than width", set("attention.head_count", 65), "head_count");
    check("wide heads", set("attention.key_length", 1 << 20), "key_length");
    check("heads of two widths", set("attention.value_length", 8), "value_length");
    check("odd rotation", set("rope.dimension_count", 3), "rope.dimension_count");
    check("wide rotation", set("rope.dimension_count", 32), "rope.dimension_count");
    check("parts", |model| model.set("split.count", Value::U16(3)), "has 3 parts");
    check("no part", |model| model.set("split.no", Value::U32(0)), "`split.no` is of a kind");
    check("alignment", |model| model.set("general.alignment", Value::U32(12)), "alignment is 12");
    check("no weights", |model| model.tensors.clear(), "no weights");
    check("no tokens", |model| model.set(TOKENS, Value::Texts(Vec::new())), "only 0 tokens");
    check(
        "one token",
        |model| model.set(TOKENS, Value::Texts(vec!["a".into(); 300])),
        "`a` is there twice",
    );
    let token = |at: usize, text: &'static str| {
        move |model: &mut Gguf| {
            let key = model.keys.iter_mut().find(|(name, _)| name == TOKENS);
            let Some((_, Value::Texts(tokens))) = key else { panic!("there are tokens") };
            tokens[at] = text.to_owned();
        }
    };
    check("a token with a NUL", token(7, "a\0b"), "NUL");
    check("a token that is one", token(7, "\0"), "NUL");
    let empty = |model: &mut Gguf| {
        token(7, "")(model);
        token(8, "[EMPTY_7]")(model);
    };
    check("the name of one without", empty, "`[EMPTY_7]` is there twice");
    let text = |key: &'static str, text: &'static str| {
        move |model: &mut Gguf| model.set(key, Value::Text(text.into()))
    };
    check("a name with a NUL", text("general.name", "a\0"), "NUL");
    check("a template with one", text("tokenizer.chat_template", "a\0"), "NUL");
    check("any text with one", text("general.description", "a\0"), "NUL");
    check("a key with one", text("a\0b", "c"), "NUL");
    check(
        "a merge with one",
        |model| model.set("tokenizer.ggml.merges", Value::Texts(vec!["a \0".into()])),
        "NUL",
    );
    check("a tensor with one", |model| model.tensors[0].name = "a\0".into(), "NUL");
    check("no vocabulary", text("tokenizer.ggml.model", "none"), "of the kind `none`");
    check("one of another world", text("tokenizer.ggml.model", "bert"), "of the kind `bert`");
    check("no bytes", text("tokenizer.ggml.model", "llama"), "no tokens for single bytes");
    check("no line end", text("tokenizer.ggml.model", "rwkv"), "no token for a line end");
    check(
        "a byte that is none",
        |model| model.set(TYPES, Value::I32s(vec![6; count(model)])),
        "stands for no byte",
    );
    let long = |model: &mut Gguf| {
        let mut tokens: Vec<_> = (0..300).map(|n| n.to_string()).collect();
        tokens[7] = "n".repeat(1025);
        model.set(TOKENS, Value::Texts(tokens));
    };
    check("long token", long, "more than 1024 bytes");
    check("twice", |model| model.tensors[1].name = model.tensors[0].name.clone(), "there twice");
    check("no shape", |model| model.tensors[0].shape.clear(), "no shape");
    check("empty", |model| model.tensors[0].shape[1] = 0, "impossible shape");
    check("huge", |model| model.tensors[0].shape = vec![u64::MAX, 2], "impossible shape");
    check("larger", |model| model.tensors[0].shape[1] += 64, "does not follow");
    let last = |model: &mut Gguf| model.tensors.last_mut().unwrap().shape[0] += 1 << 40;
    check("beyond the end", last, "ends too early");
    check("twice a key", |model| model.keys.push(model.keys[0].clone()), "there twice");
    check("long name", |model| model.tensors[0].name = "n".repeat(64), "64 bytes in a name");
    let scaling = |model: &mut Gguf| {
        for architecture in ["llama", "gpt-oss"] {
            model.set(&format!("{architecture}.rope.scaling.type"), Value::Text("x".into()));
        }
    };
    check("unknown scaling", scaling, "rope.scaling.type");
    let epsilon = |model: &mut Gguf| {
        for architecture in ["llama", "gpt-oss"] {
            let key = format!("{architecture}.attention.layer_norm_rms_epsilon");
            model.set(&key, Value::F32(-1.0));
        }
    };
    check("negative epsilon", epsilon, "layer_norm_rms_epsilon");
}

/// Every key that refers to a token, or lists a value per token, matches the vocabulary.
#[test]
fn token_metadata_must_be_consistent() {
    for name in IDS {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let set = |value: fn(&Gguf) -> Value| {
            let key = key.clone();
            move |model: &mut Gguf| {
                let value = value(model);
                model.set(&key, value);
            }
        };
        let beyond = format!("`{key}` names a token that is not there");
        check("the first beyond", set(|model| Value::U32(count(model) as u32)), &beyond);
        check("far beyond", set(|_| Value::U32(u32::MAX)), &beyond);
        let kind = format!("`{key}` is of a kind");
        check("negative", set(|_| Value::I32(-1)), &kind);
        check("of another kind", set(|_| Value::U16(1)), &kind);
        check("a fraction", set(|_| Value::F32(1.0)), &kind);
        check("text", set(|_| Value::Text("1".into())), &kind);
        check("a list", set(|_| Value::I32s(vec![1])), &kind);
        // The last id exists.
        for mut model in [llama(1), gpt_oss(1)] {
            set(|model| Value::U32(count(model) as u32 - 1))(&mut model);
            header(&model.to_bytes()).unwrap();
        }
    }
    for (list, what) in [(TYPES, "what they are"), (SCORES, "how likely they are")] {
        for off in [-1, 1] {
            let set = |model: &mut Gguf| {
                let count = count(model) as i32 + off;
                model.set(list, Value::I32s(vec![1; count as usize]));
            };
            check("another length", set, what);
        }
        check("no list", |model| model.set(list, Value::U32(1)), &format!("`{list}` is of a kind"));
        let texts =
            |model: &mut Gguf| model.set(list, Value::Texts(vec!["1".into(); count(model)]));
        check("a list of others", texts, &format!("`{list}` is of a kind"));
    }
    let scores = |score: f32| {
        move |model: &mut Gguf| {
            let mut scores = vec![-1.0; count(model)];
            scores[9] = score;
            model.set(SCORES, Value::F32s(scores));
        }
    };
    check("no number", scores(f32::NAN), "is not a number");
    for score in [f32::NEG_INFINITY, -1e30, 0.0] {
        let mut model = llama(1);
        scores(score)(&mut model);
        header(&model.to_bytes()).unwrap();
    }
    let merges = |merges: &'static [&'static str]| {
        move |model: &mut Gguf| {
            let merges = merges.iter().map(|&merge| merge.to_owned()).collect();
            model.set(MERGES, Value::Texts(merges));
        }
    };
    for one in ["", "a", "ab", " ", "a ", " a"] {
        let one = one.to_owned();
        let spoil = move |model: &mut Gguf| {
            model.set(MERGES, Value::Texts(vec!["a b".into(), one.clone()]));
        };
        check("a merge of one", spoil, "merge 1 does not have two parts");
    }
    // A merge that does not result in a token is split again.
    let mut model = llama(1);
    merges(&["a b", "\u{120} q", "xyz uvw", "  a"])(&mut model);
    header(&model.to_bytes()).unwrap();
    check(
        "no list",
        |model| model.set(MERGES, Value::U32(1)),
        "`tokenizer.ggml.merges` is of a kind",
    );
    check("none", |model| model.keys.retain(|(name, _)| name != MERGES), "no merges");
    for suppressed in [-1, 1 << 20] {
        let set = |model: &mut Gguf| model.set(SUPPRESSED, Value::I32s(vec![0, suppressed]));
        check(
            "suppressed",
            set,
            "`tokenizer.ggml.suppress_tokens` names a token that is not there",
        );
    }
    check(
        "tokens",
        |model| model.set(TOKENS, Value::U32(1)),
        "`tokenizer.ggml.tokens` is of a kind",
    );
    check(
        "flags",
        |model| model.set("tokenizer.ggml.add_bos_token", Value::U32(1)),
        "is of a kind",
    );
}

/// Returns how many tokens a model has.
fn count(model: &Gguf) -> usize {
    let Some((_, Value::Texts(tokens))) = model.keys.iter().find(|(name, _)| name == TOKENS) else {
        panic!("there are tokens")
    };
    tokens.len()
}

#[test]
fn other_files_are_distinguished() {
    for other in [&b""[..], b"GG", b"GGML", b"PK\x03\x04 a wheel"] {
        assert!(matches!(header(other), Err(GgufError::NotGguf)), "{other:?}");
    }
    let mut old = llama(1).to_bytes();
    old[4] = 1;
    assert!(matches!(header(&old), Err(GgufError::Version(1))));
}

/// Writes a model in three parts into a folder, and reads it again.
fn parted(spoil: impl Fn(&mut Vec<Gguf>), first: &str) -> Result<Header, GgufError> {
    let folder = tempfile::tempdir().unwrap();
    let mut parts = llama(1).parts(3);
    spoil(&mut parts);
    for (index, part) in (1..).zip(&parts) {
        part.write(&folder.path().join(format!("m-{index:05}-of-00003.gguf"))).unwrap();
    }
    fs::copy(folder.path().join("m-00001-of-00003.gguf"), folder.path().join("m.gguf")).unwrap();
    open(&folder.path().join(first))
}

#[test]
fn parts_are_read_together() {
    let first = "m-00001-of-00003.gguf";
    let whole = header(&FILES[0]).unwrap();
    let Header { facts, shape } = parted(|_| (), first).unwrap();
    assert_eq!(facts, whole.facts);
    assert!(shape.file_bytes > whole.shape.file_bytes, "there are more headers");
    assert_eq!(shape.token_bytes, whole.shape.token_bytes);

    let check = |what: &str, spoil: fn(&mut Vec<Gguf>), name: &str, want: &str| {
        let error = parted(spoil, name).expect_err(what).to_string();
        assert!(error.contains(want), "{what}: {error}");
    };
    check(
        "another name",
        |_| (),
        "m.gguf",
        "3 parts according to its content, and 1 according to its name",
    );
    check("not the first", |_| (), "m-00002-of-00003.gguf", "part 2 of 3; name the first");
    check("one is gone", |parts| parts.truncate(2), first, "`m-00003-of-00003.gguf` is missing");
    check("another order", |parts| parts.swap(1, 2), first, "part 2 is another one");
    check("fewer weights", |parts| parts[2].tensors.truncate(1), first, "belong together");
    let twice = |parts: &mut Vec<Gguf>| {
        parts[2].tensors[0] = parts[1].tensors[0].clone();
    };
    check("the same weights", twice, first, "is there twice");
    let two = |parts: &mut Vec<Gguf>| parts[0].set("split.count", Value::U16(2));
    check(
        "another count",
        two,
        first,
        "2 parts according to its content, and 3 according to its name",
    );
    let kind = |parts: &mut Vec<Gguf>| parts[1].set("split.no", Value::I32(1));
    check("another kind", kind, first, "`split.no` is of a kind");
}

/// A truncated file is detected at any length; the header is read no further than it extends.
#[test]
fn a_cut_file_is_noticed() {
    let bytes = &FILES[0];
    for cut in (4..9000).step_by(3).chain([20_000, 200_000, bytes.len() - 64]) {
        match header(&bytes[..cut]) {
            Err(GgufError::Truncated { wanted, found }) => {
                assert!(wanted > found && found == cut as u64, "{wanted} {found} {cut}");
            }
            other => panic!("cut at {cut}: {other:?}"),
        }
        // The file may have been longer when its size was queried.
        let shrunk = read(&bytes[..cut], bytes.len() as u64);
        assert!(shrunk.is_ok() || matches!(shrunk, Err(GgufError::Truncated { .. })));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn any_damage_is_read_or_refused(
        flips in prop::collection::vec((0_usize..9000, any::<u8>()), 1..20),
        oss in any::<bool>(),
    ) {
        let mut bytes = FILES[usize::from(oss)].clone();
        for (at, value) in flips {
            bytes[at] = value;
        }
        let _ = header(&bytes);
    }

    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = header(&bytes);
        let head = b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0";
        bytes.splice(0..0, head.iter().copied());
        let _ = header(&bytes);
    }
}

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";
const SUPPRESSED: &str = "tokenizer.ggml.suppress_tokens";
/// As llama.cpp spells them.
const IDS: [&str; 18] = [
    "bos",
    "eos",
    "eot",
    "eom",
    "unknown",
    "seperator",
    "padding",
    "mask",
    "cls",
    "prefix",
    "suffix",
    "middle",
    "fim_pre",
    "fim_suf",
    "fim_mid",
    "fim_pad",
    "fim_rep",
    "fim_sep",
];
