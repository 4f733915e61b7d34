//! `crocevia perf`: each operation between two processes, with its data checked; agreement; what
//! the user is told when an end is wrong, missing or dead.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{crocevia, fail, output, stderr, succeed};

/// Runs both ends and gives the client's JSON.
fn pair(arguments: &[&str]) -> Value {
    let text = succeed(crocevia(&["perf"]).args(arguments).args(["--pair", "--json"]));
    serde_json::from_str(&text).expect("JSON")
}

/// A checked run of `n` messages must have verified `bytes` and measured something.
#[track_caller]
fn measures(arguments: &[&str], n: u64, bytes: u64) {
    let result = pair(&[arguments, &["--check"]].concat());
    assert_eq!(result["checked"]["bytes"], bytes, "{result}");
    let row = &result["results"][0];
    assert_eq!(row["iterations"], n, "{result}");
    let figure = row.get("bw_average").or(row.get("t_typical")).and_then(Value::as_f64);
    assert!(figure.is_some_and(|figure| figure > 0.0), "{result}");
}

#[test]
fn bandwidth_of_each_operation() {
    measures(&["write-bw", "-n", "40", "-s", "5000"], 40, 200_000);
    measures(&["read-bw", "-n", "40", "-s", "5000"], 40, 200_000);
    measures(&["send-bw", "-n", "40", "-s", "5000"], 40, 200_000);
    measures(&["atomic-bw", "-n", "40"], 40, 320);
}

#[test]
fn latency_of_each_operation() {
    // Ten more go before those that count; of write and send both ends are checked.
    measures(&["write-lat", "-n", "20", "-s", "100"], 20, 2 * 3000);
    measures(&["read-lat", "-n", "20", "-s", "100"], 20, 3000);
    measures(&["send-lat", "-n", "20", "-s", "100"], 20, 2 * 3000);
    measures(&["atomic-lat", "-n", "20"], 20, 240);
}

#[test]
fn several_queue_pairs_share_the_work() {
    measures(&["write-bw", "-n", "50", "-s", "3000", "-q", "3", "-t", "4"], 50, 150_000);
    measures(&["send-bw", "-n", "50", "-s", "3000", "-q", "3", "-t", "1"], 50, 150_000);
    measures(&["atomic-bw", "-n", "50", "-q", "4"], 50, 400);
}

#[test]
fn services_that_may_lose_still_give_a_result() {
    for service in ["UC", "UD"] {
        let result = pair(&["send-bw", "-c", service, "-s", "512", "-n", "50", "--check"]);
        assert_eq!(result["connection"], service);
        let lost = result["results"][0]["lost"].as_u64().expect("a count");
        assert_eq!(result["checked"]["bytes"], (50 - lost) * 512, "{result}");
        pair(&["send-lat", "-c", service, "-s", "64", "-n", "20", "--check"]);
    }
    pair(&["write-bw", "-c", "uc", "-s", "5000", "-n", "20", "--check"]);
    pair(&["write-lat", "-c", "uc", "-n", "20"]);
}

#[test]
fn all_sizes_are_powers_of_two() {
    let result = pair(&["send-lat", "-c", "UD", "-a", "-n", "5", "-m", "1024"]);
    let sizes: Vec<u64> = result["results"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["bytes"].as_u64())
        .collect();
    assert_eq!(sizes, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
}

#[test]
fn a_duration_ends_by_itself() {
    let start = Instant::now();
    let result = pair(&["write-bw", "-D", "0.3", "-s", "4096"]);
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(result["duration_s"], 0.3);
    assert!(result["results"][0]["iterations"].as_u64() > Some(10), "{result}");
}

#[test]
fn columns_are_perftests() {
    let bw = succeed(&mut crocevia(&["perf", "write-bw", "--pair", "-n", "10", "-s", "1K"]));
    let header = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]";
    assert!(bw.contains(header), "{bw}");
    assert!(bw.contains("\n 1024       10 "), "{bw}");
    let lat = succeed(&mut crocevia(&["perf", "read-lat", "--pair", "-n", "10"]));
    let columns = [
        "#bytes",
        "#iterations",
        "t_min[usec]",
        "t_max[usec]",
        "t_typical[usec]",
        "t_avg[usec]",
        "t_stdev[usec]",
        "99% percentile[usec]",
        "99.9% percentile[usec]",
    ];
    let line = lat.lines().find(|line| line.contains("#bytes")).expect("a header");
    let mut at = 0;
    for column in columns {
        at += line[at..].find(column).unwrap_or_else(|| panic!("{column} is not in {line}"));
    }
}

#[test]
fn arguments_that_do_not_go_together() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["read-bw", "-c", "UC"], &["read-bw on UC", "READ", "-c RC"]),
        (&["atomic-lat", "-c", "UC"], &["atomics"]),
        (&["write-bw", "-c", "UD"], &["datagrams can only be sent"]),
        (&["atomic-bw", "-s", "16"], &["8 bytes"]),
        (&["write-lat", "-q", "2"], &["one message in flight", "-q"]),
        (&["write-lat", "-t", "2"], &["one message in flight", "-t"]),
        (&["write-bw", "-s", "0"], &["expected 1 to", "\"0\""]),
        (&["write-bw", "-s", "64X"], &["64K"]),
        (&["write-bw", "-m", "1500"], &["256, 512, 1024, 2048 or 4096", "1500"]),
        (&["write-bw", "-D", "0"], &["seconds"]),
        (&["write-bw", "-n", "5", "-D", "1"], &["cannot be used with"]),
        (&["write-bw", "-a", "-s", "64"], &["cannot be used with"]),
        (&["write-bw", "--pair", "127.0.0.1"], &["cannot be used with"]),
        (&["write-bw", "--vs", "sctp"], &["sctp", "[possible values: tcp, udp]"]),
        (&["write-bw", "--vs", "tcp", "--rounds", "0"], &["--rounds"]),
        (&["write-bw", "--rounds", "2"], &["--vs"]),
    ];
    for (arguments, parts) in cases {
        fail(crocevia(&["perf"]).args(*arguments), 2, parts);
    }
}

/// A loopback address of this test process, so that two runs at once do not meet.
fn own(n: u8) -> String {
    let pid = std::process::id();
    format!("127.{}.{}.{n}", 1 + pid % 250, pid / 250 % 250)
}

/// A server on an address of its own, and the port on which it listens.
struct Server {
    child: Child,
    port: String,
    addr: String,
}

impl Server {
    fn start(addr: &str, arguments: &[&str]) -> Self {
        let mut child = crocevia(&["perf"])
            .args(arguments)
            .args(["--addr", addr, "-p", "0", "--announce"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a server");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("its output");
        BufReader::new(stdout).read_line(&mut line).expect("its announcement");
        let port = line.trim().rsplit(':').next().expect("a port").to_owned();
        Self { child, port, addr: addr.to_owned() }
    }

    fn client(&self, own: &str, arguments: &[&str]) -> std::process::Command {
        let mut command = crocevia(&["perf"]);
        command.args(arguments).args([&self.addr, "--addr", own, "-p", &self.port]);
        command
    }

    /// The server ends by itself; what it says.
    fn ending(mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        while self.child.try_wait().expect("a child").is_none() {
            assert!(start.elapsed() < Duration::from_secs(30), "the server does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut text = String::new();
        let stderr = self.child.stderr.as_mut().expect("its errors");
        std::io::Read::read_to_string(stderr, &mut text).expect("text");
        (self.child.wait().expect("a status").code(), text)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn ends_that_differ_are_told_in_what() {
    let cases: [(&[&str], &[&str], &str); 4] = [
        (&["write-bw", "-s", "4096"], &["write-bw", "-s", "64"], "size (-s, -a)"),
        (&["write-bw"], &["read-bw"], "test"),
        (&["send-bw", "-q", "2"], &["send-bw", "-q", "4"], "number of queue pairs (-q)"),
        (&["send-bw", "-c", "UD"], &["send-bw", "-c", "RC"], "connection type (-c)"),
    ];
    for (server, client, what) in cases {
        let server = Server::start(&own(11), server);
        let parts = ["the two ends differ in the", what];
        fail(&mut server.client(&own(12), client), 1, &parts);
        let (code, text) = server.ending();
        assert_eq!(code, Some(1));
        assert!(text.contains(what), "{text}");
    }
}

#[test]
fn what_one_end_leaves_out_the_other_decides() {
    let server = Server::start(&own(21), &["write-bw", "-s", "300", "-n", "20"]);
    let text = succeed(&mut server.client(&own(22), &["write-bw", "--json"]));
    let result: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(result["results"][0]["bytes"], 300);
    assert_eq!(result["results"][0]["iterations"], 20);
    assert_eq!(server.ending().0, Some(0));
}

#[test]
fn two_ends_on_one_address_still_meet() {
    // Without --addr the client's TCP address is the server's: it takes another for RDMA.
    let server = Server::start("127.0.0.1", &["write-bw", "-n", "20"]);
    let mut client = crocevia(&["perf", "write-bw", "127.0.0.1", "-p", &server.port, "--json"]);
    let result: Value = serde_json::from_str(&succeed(&mut client)).expect("JSON");
    assert_eq!(result["remote_gid"], "::ffff:127.0.0.1");
    assert_ne!(result["local_gid"], "::ffff:127.0.0.1");
}

#[test]
fn a_gid_index_that_is_empty_is_told_with_the_table() {
    let server = Server::start(&own(31), &["write-bw"]);
    let mut client = server.client(&own(32), &["write-bw", "-x", "77"]);
    fail(&mut client, 1, &["-x 77", &own(32)]);
    let (code, text) = server.ending();
    assert_eq!(code, Some(1));
    assert!(text.contains("the other end") && text.contains("77"), "{text}");
}

/// The comparison's lines of `size` are RDMA and both rivals, each with `rounds` figures.
#[track_caller]
fn compares(result: &Value, size: u64, rounds: usize) {
    let lines = result["vs"]["lines"].as_array().expect("lines");
    let lines: Vec<&Value> = lines.iter().filter(|line| line["bytes"] == size).collect();
    let over: Vec<&str> = lines.iter().filter_map(|line| line["over"].as_str()).collect();
    assert_eq!(over, ["rdma", "tcp", "udp"], "{result}");
    let number = |value: &Value| value.as_f64().expect("a number");
    for line in &lines {
        let figures: Vec<f64> =
            line["rounds"].as_array().expect("figures").iter().map(number).collect();
        assert_eq!(figures.len(), rounds, "{result}");
        assert!(figures.iter().all(|&figure| figure > 0.0), "{result}");
        let (min, median, max) =
            (number(&line["min"]), number(&line["median"]), number(&line["max"]));
        assert!(min <= median && median <= max, "{result}");
        if line["over"] != "rdma" {
            let expected = number(&lines[0]["median"]) / median;
            assert!((number(&line["ratio"]) / expected - 1.0).abs() < 1e-9, "{result}");
        }
    }
}

#[test]
fn rivals_of_every_test() {
    let vs = ["--vs", "udp,tcp", "--rounds", "2", "-n", "20"];
    for test in ["write-bw", "read-bw", "send-bw", "write-lat", "read-lat", "send-lat"] {
        for size in [1, 9000] {
            let size_text = size.to_string();
            let result = pair(&[&[test, "-s", &size_text][..], &vs].concat());
            compares(&result, size, 2);
            let unit = if test.ends_with("lat") { "us" } else { "MB/s" };
            assert_eq!(result["vs"]["unit"], unit);
            assert_eq!(result["results"].as_array().map(Vec::len), Some(1), "{result}");
        }
    }
    compares(&pair(&[&["atomic-bw"][..], &vs].concat()), 8, 2);
    compares(&pair(&[&["atomic-lat"][..], &vs].concat()), 8, 2);
    compares(&pair(&[&["send-bw", "-c", "UD", "-s", "512"][..], &vs].concat()), 512, 2);
    let checked = pair(&[&["send-bw", "-s", "3000", "--check"][..], &vs].concat());
    assert_eq!(checked["checked"]["bytes"], 2 * 20 * 3000, "{checked}");
    compares(&pair(&["write-bw", "--vs", "tcp,udp", "-D", "0.1"]), 65536, 3);
}

#[test]
fn rivals_of_messages_beyond_any_buffer() {
    let vs = ["--vs", "tcp,udp", "--rounds", "1", "-n", "5", "-s", "3M"];
    compares(&pair(&[&["write-bw"][..], &vs].concat()), 3 << 20, 1);
    // That many datagrams at once would be lost: the ping-pong of them is left out, and said so.
    let lat = pair(&[&["write-lat"][..], &vs].concat());
    assert_eq!(lat["vs"]["lines"].as_array().map(Vec::len), Some(2), "{lat}");
    assert!(lat["vs"]["notes"][0].as_str().is_some_and(|note| note.contains("udp")), "{lat}");
}

#[test]
fn rivals_stand_in_a_table_below_the_rows() {
    let mut command = crocevia(&["perf", "write-bw", "--pair", "--vs", "tcp,udp", "-n", "20"]);
    let text = succeed(&mut command);
    let table = text.split("RDMA/rival\n").nth(1).expect("a table");
    for (line, over) in table.lines().zip(["rdma", "tcp", "udp"]) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(columns[..2], ["65536", over], "{text}");
        let ratio = columns.last().expect("a ratio");
        match over {
            "rdma" => assert_eq!(*ratio, "-"),
            _ => assert!(ratio.parse::<f64>().is_ok_and(|ratio| ratio > 0.0), "{text}"),
        }
    }
    assert_eq!(text.matches("\n 65536      20 ").count(), 1, "{text}");
}

#[test]
fn a_server_learns_of_the_rivals_from_its_client() {
    let server = Server::start(&own(71), &["send-lat"]);
    let arguments = ["send-lat", "--vs", "tcp,udp", "--rounds", "1", "-n", "20", "--json"];
    let text = succeed(&mut server.client(&own(72), &arguments));
    compares(&serde_json::from_str(&text).expect("JSON"), 2, 1);
    assert_eq!(server.ending().0, Some(0));
}

#[test]
fn a_server_from_before_the_rivals_is_told_apart() {
    let listener = TcpListener::bind((own(81).as_str(), 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let old = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut hello = String::new();
        BufReader::new(&stream).read_line(&mut hello).expect("its hello");
        let mut hello: Value = serde_json::from_str(&hello).expect("JSON");
        let said = hello["Hello"].as_object_mut().expect("a hello");
        said.remove("vs").expect("what an old end does not say");
        said["ask"].as_object_mut().and_then(|ask| ask.remove("vs")).expect("the same");
        writeln!(stream, "{hello}").expect("an answer");
        let mut rest = String::new();
        let _ = std::io::Read::read_to_string(&mut stream, &mut rest);
        rest
    });
    let (server, client) = (own(81), own(82));
    let mut client =
        crocevia(&["perf", "write-bw", &server, "--addr", &client, "-p", &port, "--vs", "tcp"]);
    fail(&mut client, 1, &["older", "--vs"]);
    assert!(old.join().expect("the old server").contains("Failed"));
}

#[test]
fn nobody_there_says_what_to_do() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let port = free.port().to_string();
    let mut client = crocevia(&["perf", "write-bw", "127.0.0.1", "-p", &port]);
    fail(&mut client, 1, &["nobody listens", "start the server first"]);
    let mut client = crocevia(&["perf", "write-bw", "no-such-host.invalid"]);
    fail(&mut client, 1, &["no-such-host.invalid"]);
}

#[test]
fn a_stranger_is_told_apart() {
    let server = Server::start(&own(41), &["write-bw"]);
    let mut stream =
        TcpStream::connect(format!("{}:{}", server.addr, server.port)).expect("a connection");
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("a request");
    let (code, text) = server.ending();
    assert_eq!(code, Some(1));
    assert!(text.contains("does not speak") && text.contains("GET / HTTP"), "{text}");
}

#[test]
fn a_dead_peer_ends_within_seconds() {
    let mut server = Server::start(&own(51), &["send-bw"]);
    let mut client = server
        .client(&own(52), &["send-bw", "-D", "60"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a client");
    // Its header stands when both ends are connected.
    let stdout = BufReader::new(client.stdout.take().expect("its output"));
    stdout.lines().map_while(Result::ok).find(|line| line.contains("#bytes")).expect("a header");
    let start = Instant::now();
    server.child.kill().expect("the server dies");
    let output = client.wait_with_output().expect("the client ends");
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("crocevia: error: "), "{}", stderr(&output));
}

#[test]
fn a_server_in_use_says_which_port() {
    let taken = TcpListener::bind((own(61).as_str(), 0)).expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let mut server = crocevia(&["perf", "write-bw", "--addr", &own(61), "-p", &port]);
    let output = output(&mut server);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&format!("TCP port {port}")), "{}", stderr(&output));
}
