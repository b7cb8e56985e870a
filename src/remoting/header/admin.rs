//! Headers of administration: topics (17), resets (222), pages of tables (21, 201).

use std::borrow::Cow;

use crate::common::topic::TopicConfig;
use crate::remoting::command::Command;
use crate::remoting::ext::{CustomHeader, FieldError, HeaderWriter};

/// Header of 17 (and 513).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateTopicRequest<'a> {
    /// Topic.
    pub topic: Cow<'a, str>,
    /// The topic itself, or TBW102.
    pub default_topic: Cow<'a, str>,
    /// Queues consumers see.
    pub read_queue_nums: i32,
    /// Queues producers see.
    pub write_queue_nums: i32,
    /// Permission bits.
    pub perm: i32,
    /// SINGLE_TAG or MULTI_TAG.
    pub topic_filter_type: Cow<'a, str>,
    /// Flags.
    pub topic_sys_flag: i32,
    /// Ordered topic.
    pub order: bool,
    /// `+name=value,-name`.
    pub attributes: Cow<'a, str>,
}

impl<'a> CreateTopicRequest<'a> {
    /// Reads the header; what is missing has the default of a topic.
    ///
    /// # Errors
    /// The topic is missing, or a number is none.
    pub fn decode(command: &'a Command<'_>) -> Result<Self, FieldError> {
        let ext = &command.ext;
        let default = TopicConfig::default();
        Ok(Self {
            topic: ext.need_text("topic")?,
            default_topic: ext.text("defaultTopic").unwrap_or_default(),
            read_queue_nums: ext.i32("readQueueNums")?.unwrap_or(default.read_queue_nums),
            write_queue_nums: ext.i32("writeQueueNums")?.unwrap_or(default.write_queue_nums),
            perm: ext.i32("perm")?.unwrap_or(default.perm),
            topic_filter_type: ext.text("topicFilterType").unwrap_or(Cow::Owned(default.topic_filter_type)),
            topic_sys_flag: ext.i32("topicSysFlag")?.unwrap_or(0),
            order: ext.bool("order").unwrap_or(false),
            attributes: ext.text("attributes").unwrap_or_default(),
        })
    }
}

impl CustomHeader for CreateTopicRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("topic", &self.topic);
        out.text("defaultTopic", &self.default_topic);
        out.int("readQueueNums", self.read_queue_nums.into());
        out.int("writeQueueNums", self.write_queue_nums.into());
        out.int("perm", self.perm.into());
        out.text("topicFilterType", &self.topic_filter_type);
        out.int("topicSysFlag", self.topic_sys_flag.into());
        out.bool("order", self.order);
        out.option_text("attributes", Some(&*self.attributes).filter(|attributes| !attributes.is_empty()));
    }
}

/// Header of 222.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResetOffsetRequest<'a> {
    /// Topic.
    pub topic: Cow<'a, str>,
    /// Group.
    pub group: Cow<'a, str>,
    /// One queue; negative: all.
    pub queue_id: i32,
    /// The offset itself, for one queue.
    pub offset: Option<i64>,
    /// Milliseconds; negative: the end.
    pub timestamp: i64,
    /// Also forwards.
    pub is_force: bool,
}

impl<'a> ResetOffsetRequest<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// Topic or group is missing, or a number is none.
    pub fn decode(command: &'a Command<'_>) -> Result<Self, FieldError> {
        let ext = &command.ext;
        Ok(Self {
            topic: ext.need_text("topic")?,
            group: ext.need_text("group")?,
            queue_id: ext.i32("queueId")?.unwrap_or(-1),
            offset: ext.i64("offset")?.filter(|offset| *offset != -1),
            timestamp: ext.i64("timestamp")?.unwrap_or(-1),
            is_force: ext.bool("isForce").unwrap_or(false),
        })
    }
}

impl CustomHeader for ResetOffsetRequest<'_> {
    fn write(&self, out: &mut HeaderWriter<'_>) {
        out.text("topic", &self.topic);
        out.text("group", &self.group);
        out.int("queueId", self.queue_id.into());
        if let Some(offset) = self.offset {
            out.int("offset", offset);
        }
        out.int("timestamp", self.timestamp);
        out.bool("isForce", self.is_force);
    }
}

/// Which part of a table is wanted (21: `topicSeq`, `maxTopicNum`; 201: `groupSeq`, `maxGroupNum`); `None`: all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePage {
    /// First entry.
    pub begin: usize,
    /// Entries at most.
    pub count: usize,
}

impl TablePage {
    /// Entries of a page that names no number (`splitMetadataSize`).
    pub const DEFAULT_COUNT: usize = 2_000;

    /// Reads the page of a request: any of its fields makes it one. A version other than `current` begins anew.
    ///
    /// # Errors
    /// A number is none.
    pub fn decode(command: &Command<'_>, seq: &'static str, max: &'static str, current: &str) -> Result<Option<Self>, FieldError> {
        let ext = &command.ext;
        let (begin, count, version) = (ext.i32(seq)?, ext.i32(max)?, ext.text("dataVersion"));
        if begin.is_none() && count.is_none() && version.is_none() {
            return Ok(None);
        }
        let same = version.is_none_or(|version| version == current);
        let begin = begin.filter(|_| same).and_then(|begin| usize::try_from(begin).ok()).unwrap_or(0);
        let count = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
        Ok(Some(Self { begin, count: count.unwrap_or(Self::DEFAULT_COUNT).min(Self::DEFAULT_COUNT) }))
    }

    /// The page's entries of a table.
    pub fn of<T>(page: Option<Self>, table: &[T]) -> &[T] {
        let Some(Self { begin, count }) = page else { return table };
        let begin = begin.min(table.len());
        &table[begin..begin.saturating_add(count).min(table.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remoting::command::SerializeType;
    use crate::remoting::ext::ExtText;

    fn command(fields: &[(&'static str, &'static str)]) -> Command<'static> {
        let mut ext = crate::remoting::ext::ExtFields::default();
        for (name, value) in fields {
            ext.push(ExtText::Plain(name), ExtText::Plain(value));
        }
        Command {
            code: 0,
            language: crate::remoting::command::Language::JAVA,
            version: 513,
            opaque: 1,
            flag: 0,
            serialize_type: SerializeType::Json,
            remark: None,
            ext,
            body: &[],
            frame: &[],
        }
    }

    #[test]
    fn topic_creation() {
        let request = command(&[("topic", "T"), ("readQueueNums", "4"), ("perm", "6"), ("order", "TRUE"), ("attributes", "+a=b")]);
        let header = CreateTopicRequest::decode(&request).unwrap();
        assert_eq!((header.read_queue_nums, header.write_queue_nums, header.order), (4, 16, true));
        assert_eq!((&*header.topic_filter_type, &*header.attributes), ("SINGLE_TAG", "+a=b"));
        assert!(CreateTopicRequest::decode(&command(&[])).is_err());
        let error = CreateTopicRequest::decode(&command(&[("topic", "T"), ("perm", "x")])).unwrap_err();
        assert!(error.to_string().contains("perm") && error.to_string().contains("\"x\""));
    }

    #[test]
    fn resets() {
        let request = command(&[("topic", "T"), ("group", "g"), ("timestamp", "5"), ("isForce", "true"), ("offset", "-1")]);
        let header = ResetOffsetRequest::decode(&request).unwrap();
        assert_eq!((header.queue_id, header.offset, header.timestamp, header.is_force), (-1, None, 5, true));
    }

    #[test]
    fn pages() {
        let page = |fields: &[(&'static str, &'static str)]| TablePage::decode(&command(fields), "topicSeq", "maxTopicNum", "v").unwrap();
        let table: Vec<usize> = (0..10).collect();
        assert_eq!(TablePage::of(page(&[]), &table), table, "an old client wants everything");
        assert_eq!(TablePage::of(page(&[("topicSeq", "3"), ("maxTopicNum", "2")]), &table), [3, 4]);
        assert_eq!(TablePage::of(page(&[("topicSeq", "9"), ("maxTopicNum", "2"), ("dataVersion", "v")]), &table), [9]);
        assert_eq!(TablePage::of(page(&[("topicSeq", "9"), ("maxTopicNum", "2"), ("dataVersion", "old")]), &table), [0, 1]);
        assert_eq!(TablePage::of(page(&[("topicSeq", "99")]), &table), [] as [usize; 0]);
        assert_eq!(page(&[("topicSeq", "-1"), ("maxTopicNum", "0")]), Some(TablePage { begin: 0, count: TablePage::DEFAULT_COUNT }));
    }
}
