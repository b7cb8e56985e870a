use super::*;

fn frame(kind: u8, header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut out = ((header.len() + body.len() + 4) as u32).to_be_bytes().to_vec();
    out.extend_from_slice(&(u32::from(kind) << 24 | header.len() as u32).to_be_bytes());
    out.extend_from_slice(header);
    out.extend_from_slice(body);
    out
}

fn json(header: &str) -> Vec<u8> {
    frame(0, header.as_bytes(), b"")
}

#[test]
fn worked_example_of_the_protocol() {
    let header =
        r#"{"code":105,"extFields":{"topic":"T1"},"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":479}"#;
    let bytes = json(header);
    assert_eq!(&bytes[..8], [0, 0, 0, 0x7c + 4, 0, 0, 0, 0x7c]);
    let command = decode(&bytes).unwrap();
    assert_eq!((command.code, command.opaque, command.flag, command.version), (105, 1, 0, 479));
    assert_eq!(command.language, Language::JAVA);
    assert_eq!(command.ext.text("topic").unwrap(), "T1");

    let binary = [
        0x00, 0x69, 0x00, 0x01, 0xDF, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0D, 0x00, 0x05, b't', b'o', b'p', b'i', b'c', 0, 0, 0,
        2, b'T', b'1',
    ];
    let bytes = frame(1, &binary, b"xy");
    let command = decode(&bytes).unwrap();
    assert_eq!((command.code, command.opaque, command.version, command.body), (105, 1, 479, &b"xy"[..]));
    assert_eq!(command.ext.text("topic").unwrap(), "T1");
    assert_eq!(command.remark, None);
}

#[test]
fn answers_are_written_as_java_writes_them() {
    let mut out = Vec::new();
    let head = Head { code: 0, flag: 1, opaque: 1, remark: None, serialize_type: SerializeType::Json };
    encode_head(&mut out, &head, &(), 2);
    out.extend_from_slice(b"{}");
    assert_eq!(
        std::str::from_utf8(&out[8..]).unwrap(),
        r#"{"code":0,"flag":1,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":513}{}"#
    );
    assert_eq!(frame_len(&out).unwrap(), Some(out.len()));
}

#[test]
fn lenient_input() {
    // What the C++ client sends: numbers, booleans, a trailing newline, an empty remark; then what fastjson alone reads.
    let texts = [
        "{\"code\":10,\"extFields\":{\"queueId\":3,\"batch\":true,\"n\":null,\"z\":\"007\"},\"flag\":0,\"language\":\"CPP\",\"opaque\":5,\"remark\":\"\",\"version\":333}\n",
        " { \"version\" : 333 , \"opaque\":\"5\", \"code\" : 010 , \"language\":1, \"flag\":0, \"future\":{\"a\":[1,{}]},\n\"extFields\" : {\"queueId\": 3, \"batch\": true, \"z\":\"007\"} }",
        "{code:10,'opaque':5,language:'CPP',version:333,extFields:{queueId:3,batch:true,z:'007',},}",
    ];
    for text in texts {
        let bytes = json(text);
        let command = decode(&bytes).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((command.code, command.opaque, command.version, command.flag), (10, 5, 333, 0), "{text}");
        assert_eq!(command.language, Language::CPP, "{text}");
        assert_eq!(command.remark, None, "{text}");
        assert_eq!(command.ext.i32("queueId").unwrap(), Some(3), "{text}");
        assert_eq!(command.ext.bool("batch"), Some(true), "{text}");
        assert_eq!(command.ext.i32("z").unwrap(), Some(7), "{text}");
        assert!(command.ext.get("n").is_none(), "{text}");
    }
    let bytes = json(r#"{"code":1,"language":"KLINGON","extFields":null}"#);
    assert_eq!(decode(&bytes).unwrap().language, Language::OTHER);
}

#[test]
fn escapes_are_undone_once() {
    let bytes = json(r#"{"code":1,"extFields":{"p":"A\u00011\u0002\"\\\/\n\ud83d\ude00\ud800x 标"}}"#);
    let command = decode(&bytes).unwrap();
    let expected = "A\u{1}1\u{2}\"\\/\n😀\u{fffd}x 标";
    assert!(matches!(command.ext.get("p"), Some(ExtText::Escaped(_))), "the quick pass must have read this");
    assert_eq!(command.ext.text("p").unwrap(), expected);
    let mut out = String::from("+");
    command.ext.get("p").unwrap().append_to(&mut out);
    assert_eq!(out, format!("+{expected}"));
}

#[test]
fn both_encodings_carry_the_same() {
    let fields = vec![("a".to_owned(), "x\u{1}\"\\\u{7f}ü".to_owned()), ("queueId".to_owned(), "-7".to_owned())];
    for serialize_type in [SerializeType::Json, SerializeType::Rocketmq] {
        let mut out = Vec::new();
        let head = Head { code: 310, flag: 2, opaque: -9, remark: Some("why\n\"not\""), serialize_type };
        encode_head(&mut out, &head, &fields, 3);
        out.extend_from_slice(b"abc");
        let command = decode(&out).unwrap();
        assert_eq!((command.code, command.flag, command.opaque, command.version), (310, 2, -9, VERSION));
        assert_eq!(command.language, Language::RUST);
        assert_eq!(command.serialize_type, serialize_type);
        assert_eq!(command.remark.as_deref(), Some("why\n\"not\""));
        assert!(command.is_oneway() && !command.is_response());
        let read: Vec<_> = command.ext.iter().map(|(k, v)| (k.text().into_owned(), v.text().into_owned())).collect();
        assert_eq!(read, fields);
        assert_eq!(command.body, b"abc");
        for cut in 0..out.len() {
            assert!(decode(&out[..cut]).is_err(), "cut at {cut}");
        }
    }
}

#[test]
fn impossible_lengths() {
    assert_eq!(frame_len(&[0, 0, 0]), Ok(None));
    assert_eq!(frame_len(&[0, 0, 0, 3]), Err(DecodeError::Length(3)));
    assert_eq!(frame_len(&(-1i32).to_be_bytes()), Err(DecodeError::Length(-1)));
    assert_eq!(frame_len(&(MAX_FRAME_LEN as i32 - 4).to_be_bytes()), Ok(Some(MAX_FRAME_LEN)));
    assert_eq!(frame_len(&(MAX_FRAME_LEN as i32 - 3).to_be_bytes()), Err(DecodeError::TooLong(MAX_FRAME_LEN as u64 + 1)));
    let mut bytes = json("{}");
    bytes[7] = 200;
    assert!(matches!(decode(&bytes), Err(DecodeError::HeaderLength(200, 10))));
    assert_eq!(decode(&frame(2, b"{}", b"")).unwrap_err(), DecodeError::SerializeType(2));
    for bad in ["", "[]", "{", "{\"code\":1", "{\"code\":1}}", "nonsense", "\u{0}"] {
        assert!(matches!(decode(&json(bad)), Err(DecodeError::Json(_))), "{bad:?}");
    }
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    assert!(matches!(decode(&json(&deep)), Err(DecodeError::Json(_))));
}

#[test]
fn binary_lengths_that_lie_and_wrapped_codes() {
    let fixed = |code: i16, ext_len: i32, ext: &[u8]| {
        let mut header = code.to_be_bytes().to_vec();
        header.extend_from_slice(&[0, 1, 0xDF, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        header.extend_from_slice(&ext_len.to_be_bytes());
        header.extend_from_slice(ext);
        frame(1, &header, b"")
    };
    for (len, ext) in [(-1, &b""[..]), (5, b"abc"), (3, b"\xff\xffa"), (6, b"\x00\x01a\x00\x00\x00"), (7, b"\x00\x01a\x7f\xff\xff\xff")] {
        assert!(matches!(decode(&fixed(11, len, ext)), Err(DecodeError::Binary(_))), "{len} {ext:?}");
    }
    assert_eq!(decode(&fixed(3442, 0, b"")).unwrap().code, 200_050);
    assert_eq!(decode(&fixed(3543, 0, b"")).unwrap().code, 200_151);
    let bytes = fixed(11, 7, b"\x00\x01a\x00\x00\x00\x00");
    assert!(decode(&bytes).unwrap().ext.is_empty(), "an empty value is absent");
}

/// Whatever the bytes are: an error or a command, no panic; and the quick pass agrees with the general reader.
#[test]
fn random_damage() {
    let good = br#"{"code":310,"extFields":{"a":"g","b":"T","i":"K\u0001v\u0002","e":3,"m":true},"flag":2,"language":"GO","opaque":7,"remark":null,"version":317}"#;
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let mut header = good.to_vec();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..header.len());
            match rng.u8(..3) {
                0 => header[at] = rng.u8(..),
                1 => drop(header.remove(at)),
                _ => header.insert(at, b"{}[]\",:\\u0n-1"[rng.usize(..13)]),
            }
        }
        let Ok(text) = std::str::from_utf8(&header) else { continue };
        let mut quick = empty_command();
        if let (Some(()), Ok(general)) = (scan(text, &mut quick), general(&header)) {
            assert_eq!(
                (quick.code, quick.flag, quick.opaque, quick.version),
                (general.code, general.flag, general.opaque, general.version)
            );
            assert_eq!(quick.remark, general.remark, "{text}");
            for name in ["a", "b", "i", "e", "m"] {
                assert_eq!(quick.ext.text(name), general.ext.text(name), "{name} of {text}");
            }
        }
        let _ = decode(&frame(1, &header, b""));
    }
}

#[test]
fn a_header_that_its_word_cannot_tell_is_replaced() {
    let quotes = "\"".repeat(MAX_HEADER_LEN / 2);
    for (serialize_type, value) in [(SerializeType::Json, quotes), (SerializeType::Rocketmq, "x".repeat(MAX_HEADER_LEN))] {
        let head = Head { code: 0, flag: FLAG_RESPONSE, opaque: 5, remark: None, serialize_type };
        let mut out = vec![1, 2, 3];
        encode_head(&mut out, &head, &[("k", value.as_str())], 0);
        let answer = decode(&out[3..]).unwrap();
        assert_eq!((answer.code, answer.opaque, answer.serialize_type, answer.ext.len()), (1, 5, serialize_type, 0));
        let remark = answer.remark.unwrap();
        assert!(remark.starts_with("the header has 16777") && remark.ends_with("bytes, a frame takes 16777215"), "{remark}");
    }
}
