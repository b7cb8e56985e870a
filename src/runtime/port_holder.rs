//! Who holds a port: a person who reads "address already in use" wants to know by whom.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// State of a listening socket in the kernel's tables.
const LISTENING: &str = "0A";

/// One line on a listener that could not be made: address, the system's reason, and the process that holds the port where known.
pub fn bind_failure(address: SocketAddr, error: &io::Error) -> String {
    let holder = if error.kind() == io::ErrorKind::AddrInUse { holder(address.port()) } else { None };
    let holder = holder.map_or_else(String::new, |holder| format!(", held by {holder}"));
    format!("cannot listen on {address}: {error}{holder}")
}

/// The process that listens on a TCP port, as `process PID (NAME)`; `None` when it is another user's or the system does not tell.
pub fn holder(port: u16) -> Option<String> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .flat_map(|table| listening_inodes(&table, port))
        .collect();
    let links: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    if links.is_empty() {
        return None;
    }
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
        has_descriptor(&entry.path(), &links).then(|| {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            format!("process {pid} ({})", name.trim())
        })
    })
}

/// Inodes of sockets that listen on a port, out of a table of `/proc/net/tcp`.
fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    let wanted = format!(":{port:04X}");
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let listens = fields.get(1)?.ends_with(&wanted) && *fields.get(3)? == LISTENING;
        listens.then(|| fields.get(9).map(|inode| (*inode).to_owned())).flatten()
    };
    table.lines().skip(1).filter_map(inode).collect()
}

fn has_descriptor(process: &Path, links: &[String]) -> bool {
    let Ok(descriptors) = std::fs::read_dir(process.join("fd")) else { return false };
    descriptors
        .flatten()
        .filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok())
        .any(|link| link.to_str().is_some_and(|link| links.iter().any(|wanted| wanted == link)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:2694 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1\n   \
                     1: 0100007F:2694 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1\n";
        assert_eq!(listening_inodes(table, 9876), ["4711"]);
        assert!(listening_inodes(table, 9877).is_empty());
        assert!(listening_inodes("", 1).is_empty());
    }

    #[test]
    fn this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        if Path::new("/proc/net/tcp").exists() {
            let error = std::net::TcpListener::bind(address).unwrap_err();
            let text = bind_failure(address, &error);
            assert!(text.contains(&format!("process {}", std::process::id())) && text.contains(&address.to_string()), "{text}");
        }
    }
}
