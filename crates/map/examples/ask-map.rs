//! `ask-map FOLDER MOST < TASK`: the files of a folder that a task is about, the most fitting first, one path
//! a line, at most so many. What the look at the folder and the answer cost stands on standard error. With 0
//! for `MOST`: the text that an agent would get, in 8 000 characters.

use std::io::Read;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use svc_map::{Map, Wish};

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap_or_else(|| ".".into());
    let most: usize = args.next().and_then(|most| most.parse().ok()).unwrap_or(20);
    let mut task = String::new();
    std::io::stdin().read_to_string(&mut task)?;
    let mut map = Map::new(folder.into());
    let begun = Instant::now();
    let first = map.refresh(&AtomicBool::new(false))?;
    let after_first = begun.elapsed();
    let begun = Instant::now();
    map.refresh(&AtomicBool::new(false))?;
    let again = begun.elapsed();
    let begun = Instant::now();
    let wish = Wish { task: &task, scope: &[], dir: "", touched: &[] };
    if most == 0 {
        print!("{}", map.text(&wish, 8_000));
    } else {
        for ranked in map.rank(&wish, most) {
            println!("{} {:.2}", ranked.path, ranked.score);
        }
    }
    eprintln!("{} files, first {after_first:?}, again {again:?}, answer {:?}", first.files, begun.elapsed());
    Ok(())
}
