//! Headers of what the name server serves.

use std::borrow::Cow;

use crate::remoting::ext::{CustomHeader, ExtFields, FieldError, HeaderWriter};

/// Free field of a registration, ours: `true` when the body names every topic of the broker, `false` when it names some.
/// Without it (a Java broker) the name server has to guess.
pub const FULL_FIELD: &str = "__PETREL_FULL";
/// Free field of a registration, ours: shows the name server of the same process that the broker is its own.
pub const OWN_FIELD: &str = "__PETREL_OWN";
/// Free field of a registration: the broker's zone.
pub const ZONE_NAME_FIELD: &str = "__ZONE_NAME";
/// Free field of a request for a route: only the brokers of [`ZONE_NAME_FIELD`]'s zone.
pub const ZONE_MODE_FIELD: &str = "__ZONE_MODE";

/// Which broker: the fields that 103, 104, 322 and 904 share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerIdentity {
    /// `brokerName`.
    pub broker_name: String,
    /// `brokerAddr`.
    pub broker_addr: String,
    /// `clusterName`.
    pub cluster_name: String,
    /// `brokerId`.
    pub broker_id: i64,
}

impl BrokerIdentity {
    /// Reads the fields of a request.
    ///
    /// # Errors
    /// One is missing, blank or malformed.
    pub fn decode(ext: &ExtFields<'_>) -> Result<Self, FieldError> {
        Ok(Self { broker_id: ext.need_i64("brokerId")?, ..Self::decode_without_id(ext)? })
    }

    /// Reads the fields of 904, where the id may be missing.
    ///
    /// # Errors
    /// One is missing, blank or malformed.
    pub fn decode_without_id(ext: &ExtFields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            broker_name: need_name(ext, "brokerName")?,
            broker_addr: need_name(ext, "brokerAddr")?,
            cluster_name: need_name(ext, "clusterName")?,
            broker_id: ext.i64("brokerId")?.unwrap_or(0),
        })
    }
}

impl CustomHeader for BrokerIdentity {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("brokerName", &self.broker_name);
        out.text("brokerAddr", &self.broker_addr);
        out.text("clusterName", &self.cluster_name);
        out.int("brokerId", self.broker_id);
    }
}

/// Header of 103.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisterBrokerRequest {
    /// Who registers.
    pub broker: BrokerIdentity,
    /// `haServerAddr`.
    pub ha_server_addr: String,
    /// `heartbeatTimeoutMillis`.
    pub heartbeat_timeout_ms: Option<i64>,
    /// `enableActingMaster`; old brokers do not send it.
    pub enable_acting_master: Option<bool>,
    /// `bodyCrc32`; 0: not checked.
    pub body_crc32: i32,
    /// Zone ([`ZONE_NAME_FIELD`]).
    pub zone_name: Option<String>,
    /// Whether the body names every topic ([`FULL_FIELD`]).
    pub full: Option<bool>,
    /// Token of [`OWN_FIELD`].
    pub own_token: Option<String>,
}

impl RegisterBrokerRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// A needed field is missing, blank or malformed.
    pub fn decode(ext: &ExtFields<'_>) -> Result<Self, FieldError> {
        let optional = |name| ext.text(name).map(Cow::into_owned).filter(|text| !text.is_empty());
        Ok(Self {
            broker: BrokerIdentity::decode(ext)?,
            ha_server_addr: optional("haServerAddr").unwrap_or_default(),
            heartbeat_timeout_ms: ext.i64("heartbeatTimeoutMillis")?,
            enable_acting_master: ext.bool("enableActingMaster"),
            body_crc32: ext.i32("bodyCrc32")?.unwrap_or(0),
            zone_name: optional(ZONE_NAME_FIELD),
            full: ext.bool(FULL_FIELD),
            own_token: optional(OWN_FIELD),
        })
    }
}

impl CustomHeader for RegisterBrokerRequest {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        self.broker.write(out);
        out.text("haServerAddr", &self.ha_server_addr);
        if let Some(timeout) = self.heartbeat_timeout_ms {
            out.int("heartbeatTimeoutMillis", timeout);
        }
        if let Some(enabled) = self.enable_acting_master {
            out.bool("enableActingMaster", enabled);
        }
        out.bool("compressed", false);
        out.int("bodyCrc32", self.body_crc32.into());
        out.option_text(ZONE_NAME_FIELD, self.zone_name.as_deref());
        if let Some(full) = self.full {
            out.bool(FULL_FIELD, full);
        }
        out.option_text(OWN_FIELD, self.own_token.as_deref());
    }
}

/// Header of 103's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisterBrokerResponse {
    /// `haServerAddr`: where a slave replicates from.
    pub ha_server_addr: Option<String>,
    /// `masterAddr`.
    pub master_addr: Option<String>,
}

impl CustomHeader for RegisterBrokerResponse {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.option_text("haServerAddr", self.ha_server_addr.as_deref());
        out.option_text("masterAddr", self.master_addr.as_deref());
    }
}

/// A needed text that must not be blank.
///
/// # Errors
/// It is missing or blank.
pub fn need_name(ext: &ExtFields<'_>, name: &'static str) -> Result<String, FieldError> {
    let text = ext.need_text(name)?;
    if text.trim().is_empty() {
        return Err(FieldError::Malformed(name, text.into_owned(), "a text that is not blank"));
    }
    Ok(text.into_owned())
}

#[cfg(test)]
mod tests {
    use crate::remoting::codec::{self, Head};
    use crate::remoting::command::{Command, SerializeType};

    use super::*;

    #[test]
    fn written_and_read_in_both_encodings() {
        let header = RegisterBrokerRequest {
            broker: BrokerIdentity {
                broker_name: "b".to_owned(),
                broker_addr: "10.0.0.1:10911".to_owned(),
                cluster_name: "c".to_owned(),
                broker_id: 0,
            },
            ha_server_addr: "10.0.0.1:10912".to_owned(),
            heartbeat_timeout_ms: Some(5),
            enable_acting_master: Some(false),
            body_crc32: 7,
            zone_name: Some("z".to_owned()),
            full: Some(true),
            own_token: Some("t".to_owned()),
        };
        for serialize_type in [SerializeType::Json, SerializeType::Rocketmq] {
            let mut frame = Vec::new();
            let head = Head { code: 103, flag: 0, opaque: 1, remark: None, serialize_type };
            codec::encode_head(&mut frame, &head, &header, 0);
            let command = Command::parse(&frame).unwrap();
            assert_eq!(RegisterBrokerRequest::decode(&command.ext).unwrap(), header);
        }
    }

    #[test]
    fn missing_and_blank_names_are_refused() {
        let refusal = |fields: &[(&str, &str)]| {
            let mut frame = Vec::new();
            let head = Head { code: 103, flag: 0, opaque: 1, remark: None, serialize_type: SerializeType::Json };
            codec::encode_head(&mut frame, &head, fields, 0);
            RegisterBrokerRequest::decode(&Command::parse(&frame).unwrap().ext).unwrap_err()
        };
        let blank = refusal(&[("brokerName", " "), ("brokerAddr", "a:1"), ("clusterName", "c"), ("brokerId", "0")]);
        assert!(blank.to_string().contains("brokerName"), "{blank}");
        assert_eq!(refusal(&[("brokerName", "b"), ("brokerAddr", "a:1"), ("brokerId", "0")]), FieldError::Missing("clusterName"));
    }
}
