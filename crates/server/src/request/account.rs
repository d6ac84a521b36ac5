//! Parameters of logging in.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReadAccount {
    /// Whether to refresh the token first. Keys have none.
    pub refresh_token: bool,
}

/// A way to log in. This build has no login, so the values are discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum LoginStart {
    /// With a key.
    ApiKey { api_key: Dropped },
    /// In a browser.
    Chatgpt {},
    /// On another device.
    ChatgptDeviceCode {},
    /// With tokens that the client has.
    ChatgptAuthTokens { access_token: Dropped, chatgpt_account_id: Dropped },
    /// With a key of Amazon Bedrock.
    AmazonBedrock { api_key: Dropped, region: Dropped },
    /// With access keys of Amazon Bedrock.
    AmazonBedrockAccessKeys { access_key_id: Dropped, secret_access_key: Dropped, region: Dropped },
}

/// A string that is required but not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped;

impl<'de> Deserialize<'de> for Dropped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|_| Self)
    }
}

impl JsonSchema for Dropped {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}
