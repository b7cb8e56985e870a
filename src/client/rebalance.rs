//! Which queues of a topic are a consumer's: every member of a group computes the same answer from the same two sorted lists.

/// The queues of member `me` when `queues` are dealt to `members` in consecutive runs whose lengths differ by one at most
/// (`AllocateMessageQueueAveragely`). Both lists must be sorted. Nothing when `me` is no member.
pub fn averagely<'a, Q>(queues: &'a [Q], members: &[String], me: &str) -> &'a [Q] {
    let Some(index) = members.iter().position(|member| member == me) else { return &[] };
    let base = queues.len() / members.len();
    let with_one_more = queues.len() % members.len();
    let start = index * base + index.min(with_one_more);
    let len = base + usize::from(index < with_one_more);
    &queues[start..start + len]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_of_all_members_make_the_whole_list() {
        for queue_count in 0..20 {
            for member_count in 1..9 {
                let queues: Vec<usize> = (0..queue_count).collect();
                let members: Vec<String> = (0..member_count).map(|n| format!("m{n}")).collect();
                let runs: Vec<&[usize]> = members.iter().map(|member| averagely(&queues, &members, member)).collect();
                assert_eq!(runs.concat(), queues, "{queue_count} over {member_count}");
                let (least, most) = (runs.iter().map(|r| r.len()).min().unwrap(), runs.iter().map(|r| r.len()).max().unwrap());
                assert!(most - least <= 1, "{queue_count} over {member_count}");
            }
        }
    }

    #[test]
    fn as_java_deals() {
        // Java: 8 queues over 3 members: 3, 3, 2; the first members get more.
        let queues: Vec<i32> = (0..8).collect();
        let members = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        assert_eq!(averagely(&queues, &members, "a"), [0, 1, 2]);
        assert_eq!(averagely(&queues, &members, "b"), [3, 4, 5]);
        assert_eq!(averagely(&queues, &members, "c"), [6, 7]);
        assert!(averagely(&queues, &members, "stranger").is_empty());
    }
}
