//! The terminal as a picture that is drawn again and again: the other screen, no echo. Whatever
//! ends it, a panic too, leaves the terminal as it was.

use std::io::{self, IsTerminal, Write, stdin, stdout};
use std::sync::{Mutex, Once, PoisonError};

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use terminal_size::{Height, Width, terminal_size_of};

use crate::error::Result;

/// The other screen; no cursor; what is too long is not continued on the next line.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";
const HOME: &str = "\u{1b}[H";
/// Clears the rest of a line, and all lines below.
const REST: &str = "\u{1b}[K\r\n";
const BELOW: &str = "\u{1b}[J";

/// What is to be restored: nothing, the screen, or the screen and the line's settings.
static ENTERED: Mutex<Option<Option<Termios>>> = Mutex::new(None);

/// The terminal in use for pictures.
#[derive(Debug)]
pub(super) struct Terminal(());

impl Terminal {
    /// Takes the terminal; whether keys can be read from it, too.
    pub(super) fn enter() -> Result<(Self, bool)> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let tell = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                tell(panic);
            }));
        });
        let settings = stdin().is_terminal().then(|| tcgetattr(stdin()).ok()).flatten();
        let keys = settings.is_some();
        if let Some(settings) = &settings {
            let mut quiet = settings.clone();
            quiet.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
            let _ = tcsetattr(stdin(), SetArg::TCSANOW, &quiet);
        }
        *ENTERED.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings);
        let terminal = Self(());
        put(ENTER)?;
        Ok((terminal, keys))
    }

    /// Draws a picture: as much of it as the terminal has lines for.
    pub(super) fn draw(&mut self, picture: &str) -> Result<()> {
        let lines = picture.lines().take(height()).map(|line| line.to_owned()).collect::<Vec<_>>();
        Ok(put(&[HOME, &lines.join(REST), "\u{1b}[K", BELOW].concat())?)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
    }
}

/// Gives the terminal back, if it was taken.
fn leave() {
    let entered = ENTERED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(settings) = entered {
        let _ = put(LEAVE);
        if let Some(settings) = settings {
            let _ = tcsetattr(stdin(), SetArg::TCSANOW, &settings);
        }
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Lines that the terminal has.
pub(super) fn height() -> usize {
    match terminal_size_of(stdout()) {
        Some((Width(_), Height(lines))) if lines > 0 => usize::from(lines),
        _ => 24,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::process::Command;

    use nix::pty::openpty;

    use super::*;

    /// Set in the process whose terminal is looked at.
    const CHILD: &str = "CROCEVIA_TEST_TERMINAL";
    const NAME: &str = "cmd::audit::live::terminal::tests::a_panic_leaves_it_as_it_was";

    /// A thread panics while there are pictures, and nobody else gives the terminal back.
    fn in_the_picture() {
        let (mut terminal, keys) = Terminal::enter().expect("the terminal");
        assert!(keys);
        let flags = tcgetattr(stdin()).expect("settings").local_flags;
        assert!(!flags.intersects(LocalFlags::ECHO | LocalFlags::ICANON));
        terminal.draw("picture").expect("drawn");
        let worker = std::thread::spawn(|| panic!("as the test wants"));
        assert!(worker.join().is_err());
        std::mem::forget(terminal);
    }

    #[test]
    fn a_panic_leaves_it_as_it_was() {
        if std::env::var_os(CHILD).is_some() {
            return in_the_picture();
        }
        let pty = openpty(None, None).expect("a terminal");
        let before = tcgetattr(&pty.slave).expect("settings");
        let slave = || pty.slave.try_clone().expect("a descriptor");
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", NAME, "--nocapture"])
            .env(CHILD, "1")
            .env("RUST_BACKTRACE", "0")
            .stdin(slave())
            .stdout(slave())
            .stderr(slave())
            .spawn()
            .expect("a process");
        let mut master = File::from(pty.master);
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            // Ends with an error when nobody has the terminal any more.
            let _ = master.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let status = child.wait().expect("its end");
        let after = tcgetattr(&pty.slave).expect("settings");
        drop(pty.slave);
        let text = reader.join().expect("the text");
        assert!(status.success(), "{text}");
        assert_eq!(before, after, "{text}");
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what:?} in {text:?}"));
        let order = [ENTER, "picture", LEAVE, "as the test wants"].map(at);
        assert!(order.is_sorted(), "{order:?} {text:?}");
    }
}
