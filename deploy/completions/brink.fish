# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_brink_global_optspecs
    string join \n h/help V/version
end

function __fish_brink_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_brink_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_brink_using_subcommand
    set -l cmd (__fish_brink_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c brink -n "__fish_brink_needs_command" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_needs_command" -s V -l version -d 'Print version'
complete -c brink -n "__fish_brink_needs_command" -f -a "run" -d 'Run the agent: watch the node, decide, and act if told to'
complete -c brink -n "__fish_brink_needs_command" -f -a "demo" -d 'Watch a leak being caught, in control groups of its own'
complete -c brink -n "__fish_brink_needs_command" -f -a "status" -d 'Show signals, thresholds, rung and mode of the running agent'
complete -c brink -n "__fish_brink_needs_command" -f -a "top" -d 'Watch the node\'s room, who would go first and what happens, live'
complete -c brink -n "__fish_brink_needs_command" -f -a "rank" -d 'Show who would go now, and why'
complete -c brink -n "__fish_brink_needs_command" -f -a "explain" -d 'Explain why this one goes and that one does not, now or in a past decision'
complete -c brink -n "__fish_brink_needs_command" -f -a "events" -d 'Show what happens and what has happened, event by event'
complete -c brink -n "__fish_brink_needs_command" -f -a "incident" -d 'Show the last incidents, or the whole story of one: who was killed, by whom, why, and how sure that is'
complete -c brink -n "__fish_brink_needs_command" -f -a "simulate" -d 'Decide step by step from scenario files, as the kubelet would'
complete -c brink -n "__fish_brink_needs_command" -f -a "replay" -d 'Run a journal again and compare'
complete -c brink -n "__fish_brink_needs_command" -f -a "pause" -d 'End enforcement at once, for a time or until further notice'
complete -c brink -n "__fish_brink_needs_command" -f -a "resume" -d 'Enforce again'
complete -c brink -n "__fish_brink_needs_command" -f -a "config" -d 'Check or show the configuration'
complete -c brink -n "__fish_brink_needs_command" -f -a "doctor" -d 'Look at the machine: what works here, what does not, and what to do about it'
complete -c brink -n "__fish_brink_needs_command" -f -a "completion" -d 'Print the completions of a shell'
complete -c brink -n "__fish_brink_needs_command" -f -a "man" -d 'Print or write the manual pages'
complete -c brink -n "__fish_brink_needs_command" -f -a "demo-workload" -d 'Take memory on purpose: a workload of the demonstration'
complete -c brink -n "__fish_brink_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brink -n "__fish_brink_using_subcommand run" -l config -d 'The configuration; /etc/brink/config.yaml if that exists' -r -F
complete -c brink -n "__fish_brink_using_subcommand run" -l config-dir -d 'Drop-ins laid over it, *.yaml and *.conf by name; /etc/brink/conf.d if that exists' -r -F
complete -c brink -n "__fish_brink_using_subcommand run" -l mode -d 'observe: decide and tell, change nothing; enforce: carry it out' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l memory-policy -d 'kubelet: memory.available alone; confirmed: headroom must be short too' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l eviction-hard -d 'Hard thresholds; replaces the whole map, as the kubelet\'s flag does' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l eviction-soft -d 'Soft thresholds; replaces the whole map' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l eviction-soft-grace-period -d 'Graces of soft thresholds; replaces the whole map' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l eviction-minimum-reclaim -d 'Minimum reclaims; replaces the whole map' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l eviction-pressure-transition-period -d 'How long a condition outlives its cause; 0 is possible only here' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l eviction-max-pod-grace-period -d 'Longest grace of a soft eviction' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l enforce-node-allocatable -d 'With pods, hard memory thresholds hold for allocatable memory too' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l headroom-hard -d 'Brink\'s own hard threshold on what can still be allocated; 0% for none' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l headroom-soft -d 'Brink\'s own soft threshold' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l headroom-soft-grace-period -d 'Its grace' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l kubelet-config -d 'Inherit the kubelet\'s thresholds from its configuration file' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l kubelet-config-dir -d 'The kubelet\'s folder of drop-ins' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l lead-margin -d 'By how much inherited memory thresholds are raised: 64Mi, 1% for percentages, or {quantity: 64Mi, percentage: 1%}' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l node-cgroup -d 'Take this control group for the node; its limit is the capacity' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l pods-cgroup -d 'The control group all pods live in, for allocatable memory' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l manifests -d 'A folder of pod manifests that are the workloads' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l prefer -d 'Evict first what matches, by command name or cgroup path (repeatable)' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l avoid -d 'Evict last what matches (repeatable)' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l ignore -d 'Never evict what matches (repeatable)' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l housekeeping-interval -d 'How often everything is read again and cross-checked' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l realtime-priority -d 'SCHED_FIFO priority of the guard thread; 0 for none' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l move-guard-to-root-cpu-group -d 'Leave a cpu group that grants no real time, with the guard thread alone' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l kernel-programs -d 'Load programs into the kernel; without them the guard polls' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l events -d 'Tell events, and serve them on the socket events.sock in the state directory' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l events-listen -d 'Serve events on a port of loopback too: 127.0.0.1:9753; none for none' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l host-root -d 'Where the machine\'s root file system is mounted' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l state-dir -d 'Ledger, lock, stop button and socket' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l journal -d 'Journal every input to this file, for brink replay' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l log-level -d 'error, warn, info, debug or trace' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l log-format -d 'auto, text or json' -r
complete -c brink -n "__fish_brink_using_subcommand run" -l dry-run -d 'Observe, whatever the configuration says'
complete -c brink -n "__fish_brink_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brink -n "__fish_brink_using_subcommand demo" -l size -d 'Memory of the bounded group that plays the node' -r
complete -c brink -n "__fish_brink_using_subcommand demo" -s o -l output -d 'Form of the output: text or json' -r -f -a "text\t'For people'
json\t'For programs; the schemas are published'"
complete -c brink -n "__fish_brink_using_subcommand demo" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand status" -s o -l output -d 'Form of the output: text or json' -r -f -a "text\t'For people'
json\t'For programs; the schemas are published'"
complete -c brink -n "__fish_brink_using_subcommand status" -l socket -d 'Socket of the agent' -r -F
complete -c brink -n "__fish_brink_using_subcommand status" -l check -d 'End with code 3 if a threshold is crossed, with 1 if none is measured'
complete -c brink -n "__fish_brink_using_subcommand status" -s w -l watch -d 'Go on, one status a second'
complete -c brink -n "__fish_brink_using_subcommand status" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand top" -l signal -d 'The signal to rank for' -r
complete -c brink -n "__fish_brink_using_subcommand top" -s i -l interval -d 'From one look to the next: 500ms, 1s, up to 1m' -r
complete -c brink -n "__fish_brink_using_subcommand top" -l socket -d 'Socket of the agent' -r -F
complete -c brink -n "__fish_brink_using_subcommand top" -l events-socket -d 'Socket of the agent\'s events; events.sock beside its socket if not given' -r -F
complete -c brink -n "__fish_brink_using_subcommand top" -l once -d 'Print one page of text, and end'
complete -c brink -n "__fish_brink_using_subcommand top" -l ascii -d 'Only ASCII in the bars'
complete -c brink -n "__fish_brink_using_subcommand top" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand rank" -l signal -d 'The signal to rank for' -r
complete -c brink -n "__fish_brink_using_subcommand rank" -s n -l limit -d 'Places to show; all if not given' -r
complete -c brink -n "__fish_brink_using_subcommand rank" -s o -l output -d 'Form of the output: text or json' -r -f -a "text\t'For people'
json\t'For programs; the schemas are published'"
complete -c brink -n "__fish_brink_using_subcommand rank" -l socket -d 'Socket of the agent' -r -F
complete -c brink -n "__fish_brink_using_subcommand rank" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand explain" -l against -d 'Another workload to compare it with' -r
complete -c brink -n "__fish_brink_using_subcommand explain" -l signal -d 'The signal to rank for; memory.available if not given' -r
complete -c brink -n "__fish_brink_using_subcommand explain" -s o -l output -d 'Form of the output: text or json' -r -f -a "text\t'For people'
json\t'For programs; the schemas are published'"
complete -c brink -n "__fish_brink_using_subcommand explain" -l socket -d 'Socket of the agent' -r -F
complete -c brink -n "__fish_brink_using_subcommand explain" -s l -l list -d 'List the decisions that are remembered, newest last'
complete -c brink -n "__fish_brink_using_subcommand explain" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand events" -l since -d 'Where to begin: an age such as 10m, a number, BOOT:NUMBER, or now' -r
complete -c brink -n "__fish_brink_using_subcommand events" -s k -l kind -d 'Only these kinds, separated by commas' -r -f -a "agent-started\t''
pressure\t''
threshold-crossed\t''
threshold-cleared\t''
eviction-ordered\t''
eviction-completed\t''
oom-kill\t''
kill-observed\t''
incident-closed\t''
workload-started\t''
workload-ended\t''
limit-imminent\t''
oom-score-adj-differs\t''
node-reclaim\t''
loss\t''
rung-changed\t''
configuration-changed\t''"
complete -c brink -n "__fish_brink_using_subcommand events" -s n -l namespace -d 'Only what is about workloads of this namespace' -r
complete -c brink -n "__fish_brink_using_subcommand events" -s p -l pod -d 'Only what is about the pod or workload of this name' -r
complete -c brink -n "__fish_brink_using_subcommand events" -l limit -d 'No more than so many events' -r
complete -c brink -n "__fish_brink_using_subcommand events" -s o -l output -d 'Form of the output: compact, wide or json (a line for each event)' -r -f -a "compact\t'Time, kind and a sentence'
wide\t'With number, node, uid and incident'
json\t'The events themselves'"
complete -c brink -n "__fish_brink_using_subcommand events" -l socket -d 'Socket of the agent\'s events' -r -F
complete -c brink -n "__fish_brink_using_subcommand events" -s f -l follow -d 'Stay, and show what happens from now on'
complete -c brink -n "__fish_brink_using_subcommand events" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand incident" -s o -l output -d 'Form of the output: text or json' -r -f -a "text\t'For people'
json\t'For programs; the schemas are published'"
complete -c brink -n "__fish_brink_using_subcommand incident" -l journal -d 'Read this event journal, without an agent' -r -F
complete -c brink -n "__fish_brink_using_subcommand incident" -l socket -d 'Socket of the agent\'s events' -r -F
complete -c brink -n "__fish_brink_using_subcommand incident" -l html -d 'One file of HTML with everything in it'
complete -c brink -n "__fish_brink_using_subcommand incident" -l scenario -d 'A scenario for `brink simulate`'
complete -c brink -n "__fish_brink_using_subcommand incident" -l ascii -d 'Only ASCII in the chart'
complete -c brink -n "__fish_brink_using_subcommand incident" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand simulate" -s o -l output -d 'Form of the output; json is the only one' -r -f -a "json\t'Lines of JSON'"
complete -c brink -n "__fish_brink_using_subcommand simulate" -l live -d 'Add Brink\'s own rules: headroom, confirmation, credit for the dying, one order at a time, and the guards on the number of kills'
complete -c brink -n "__fish_brink_using_subcommand simulate" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand replay" -s o -l output -d 'Form of the output: text or json' -r -f -a "text\t'For people'
json\t'For programs; the schemas are published'"
complete -c brink -n "__fish_brink_using_subcommand replay" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand pause" -l for -d 'Resume by itself after this time' -r
complete -c brink -n "__fish_brink_using_subcommand pause" -s o -l output -d 'Form of the output: text or json' -r -f -a "text\t'For people'
json\t'For programs; the schemas are published'"
complete -c brink -n "__fish_brink_using_subcommand pause" -l socket -d 'Socket of the agent' -r -F
complete -c brink -n "__fish_brink_using_subcommand pause" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand resume" -s o -l output -d 'Form of the output: text or json' -r -f -a "text\t'For people'
json\t'For programs; the schemas are published'"
complete -c brink -n "__fish_brink_using_subcommand resume" -l socket -d 'Socket of the agent' -r -F
complete -c brink -n "__fish_brink_using_subcommand resume" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand config; and not __fish_seen_subcommand_from check show migrate help" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand config; and not __fish_seen_subcommand_from check show migrate help" -f -a "check" -d 'Say everything that is wrong or doubtful, and the thresholds that follow'
complete -c brink -n "__fish_brink_using_subcommand config; and not __fish_seen_subcommand_from check show migrate help" -f -a "show" -d 'Show the configuration in force, and where each value comes from'
complete -c brink -n "__fish_brink_using_subcommand config; and not __fish_seen_subcommand_from check show migrate help" -f -a "migrate" -d 'Bring files into the newest version of the configuration'
complete -c brink -n "__fish_brink_using_subcommand config; and not __fish_seen_subcommand_from check show migrate help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -s o -l output -d 'Form of the output: text or json' -r -f -a "text\t'For people'
json\t'For programs; the schemas are published'"
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l config -d 'The configuration; /etc/brink/config.yaml if that exists' -r -F
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l config-dir -d 'Drop-ins laid over it, *.yaml and *.conf by name; /etc/brink/conf.d if that exists' -r -F
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l mode -d 'observe: decide and tell, change nothing; enforce: carry it out' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l memory-policy -d 'kubelet: memory.available alone; confirmed: headroom must be short too' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l eviction-hard -d 'Hard thresholds; replaces the whole map, as the kubelet\'s flag does' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l eviction-soft -d 'Soft thresholds; replaces the whole map' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l eviction-soft-grace-period -d 'Graces of soft thresholds; replaces the whole map' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l eviction-minimum-reclaim -d 'Minimum reclaims; replaces the whole map' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l eviction-pressure-transition-period -d 'How long a condition outlives its cause; 0 is possible only here' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l eviction-max-pod-grace-period -d 'Longest grace of a soft eviction' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l enforce-node-allocatable -d 'With pods, hard memory thresholds hold for allocatable memory too' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l headroom-hard -d 'Brink\'s own hard threshold on what can still be allocated; 0% for none' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l headroom-soft -d 'Brink\'s own soft threshold' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l headroom-soft-grace-period -d 'Its grace' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l kubelet-config -d 'Inherit the kubelet\'s thresholds from its configuration file' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l kubelet-config-dir -d 'The kubelet\'s folder of drop-ins' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l lead-margin -d 'By how much inherited memory thresholds are raised: 64Mi, 1% for percentages, or {quantity: 64Mi, percentage: 1%}' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l node-cgroup -d 'Take this control group for the node; its limit is the capacity' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l pods-cgroup -d 'The control group all pods live in, for allocatable memory' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l manifests -d 'A folder of pod manifests that are the workloads' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l prefer -d 'Evict first what matches, by command name or cgroup path (repeatable)' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l avoid -d 'Evict last what matches (repeatable)' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l ignore -d 'Never evict what matches (repeatable)' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l housekeeping-interval -d 'How often everything is read again and cross-checked' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l realtime-priority -d 'SCHED_FIFO priority of the guard thread; 0 for none' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l move-guard-to-root-cpu-group -d 'Leave a cpu group that grants no real time, with the guard thread alone' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l kernel-programs -d 'Load programs into the kernel; without them the guard polls' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l events -d 'Tell events, and serve them on the socket events.sock in the state directory' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l events-listen -d 'Serve events on a port of loopback too: 127.0.0.1:9753; none for none' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l host-root -d 'Where the machine\'s root file system is mounted' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l state-dir -d 'Ledger, lock, stop button and socket' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l journal -d 'Journal every input to this file, for brink replay' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l log-level -d 'error, warn, info, debug or trace' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -l log-format -d 'auto, text or json' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -s o -l output -d 'Form of the output' -r -f -a "yaml\t'As a file could say it'
json\t'For programs'"
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l config -d 'The configuration; /etc/brink/config.yaml if that exists' -r -F
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l config-dir -d 'Drop-ins laid over it, *.yaml and *.conf by name; /etc/brink/conf.d if that exists' -r -F
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l mode -d 'observe: decide and tell, change nothing; enforce: carry it out' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l memory-policy -d 'kubelet: memory.available alone; confirmed: headroom must be short too' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l eviction-hard -d 'Hard thresholds; replaces the whole map, as the kubelet\'s flag does' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l eviction-soft -d 'Soft thresholds; replaces the whole map' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l eviction-soft-grace-period -d 'Graces of soft thresholds; replaces the whole map' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l eviction-minimum-reclaim -d 'Minimum reclaims; replaces the whole map' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l eviction-pressure-transition-period -d 'How long a condition outlives its cause; 0 is possible only here' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l eviction-max-pod-grace-period -d 'Longest grace of a soft eviction' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l enforce-node-allocatable -d 'With pods, hard memory thresholds hold for allocatable memory too' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l headroom-hard -d 'Brink\'s own hard threshold on what can still be allocated; 0% for none' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l headroom-soft -d 'Brink\'s own soft threshold' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l headroom-soft-grace-period -d 'Its grace' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l kubelet-config -d 'Inherit the kubelet\'s thresholds from its configuration file' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l kubelet-config-dir -d 'The kubelet\'s folder of drop-ins' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l lead-margin -d 'By how much inherited memory thresholds are raised: 64Mi, 1% for percentages, or {quantity: 64Mi, percentage: 1%}' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l node-cgroup -d 'Take this control group for the node; its limit is the capacity' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l pods-cgroup -d 'The control group all pods live in, for allocatable memory' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l manifests -d 'A folder of pod manifests that are the workloads' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l prefer -d 'Evict first what matches, by command name or cgroup path (repeatable)' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l avoid -d 'Evict last what matches (repeatable)' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l ignore -d 'Never evict what matches (repeatable)' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l housekeeping-interval -d 'How often everything is read again and cross-checked' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l realtime-priority -d 'SCHED_FIFO priority of the guard thread; 0 for none' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l move-guard-to-root-cpu-group -d 'Leave a cpu group that grants no real time, with the guard thread alone' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l kernel-programs -d 'Load programs into the kernel; without them the guard polls' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l events -d 'Tell events, and serve them on the socket events.sock in the state directory' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l events-listen -d 'Serve events on a port of loopback too: 127.0.0.1:9753; none for none' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l host-root -d 'Where the machine\'s root file system is mounted' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l state-dir -d 'Ledger, lock, stop button and socket' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l journal -d 'Journal every input to this file, for brink replay' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l log-level -d 'error, warn, info, debug or trace' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l log-format -d 'auto, text or json' -r
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -l origin -d 'Say where each value comes from: a file with its line, a variable, a flag, or nobody'
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from migrate" -l write -d 'Write each file in place of the one that is there, instead of printing it'
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from migrate" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "check" -d 'Say everything that is wrong or doubtful, and the thresholds that follow'
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show the configuration in force, and where each value comes from'
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "migrate" -d 'Bring files into the newest version of the configuration'
complete -c brink -n "__fish_brink_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brink -n "__fish_brink_using_subcommand doctor" -s o -l output -d 'Form of the output: text or json' -r -f -a "text\t'For people'
json\t'For programs; the schemas are published'"
complete -c brink -n "__fish_brink_using_subcommand doctor" -l config -d 'The configuration; /etc/brink/config.yaml if that exists' -r -F
complete -c brink -n "__fish_brink_using_subcommand doctor" -l config-dir -d 'Drop-ins laid over it, *.yaml and *.conf by name; /etc/brink/conf.d if that exists' -r -F
complete -c brink -n "__fish_brink_using_subcommand doctor" -l mode -d 'observe: decide and tell, change nothing; enforce: carry it out' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l memory-policy -d 'kubelet: memory.available alone; confirmed: headroom must be short too' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l eviction-hard -d 'Hard thresholds; replaces the whole map, as the kubelet\'s flag does' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l eviction-soft -d 'Soft thresholds; replaces the whole map' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l eviction-soft-grace-period -d 'Graces of soft thresholds; replaces the whole map' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l eviction-minimum-reclaim -d 'Minimum reclaims; replaces the whole map' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l eviction-pressure-transition-period -d 'How long a condition outlives its cause; 0 is possible only here' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l eviction-max-pod-grace-period -d 'Longest grace of a soft eviction' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l enforce-node-allocatable -d 'With pods, hard memory thresholds hold for allocatable memory too' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l headroom-hard -d 'Brink\'s own hard threshold on what can still be allocated; 0% for none' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l headroom-soft -d 'Brink\'s own soft threshold' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l headroom-soft-grace-period -d 'Its grace' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l kubelet-config -d 'Inherit the kubelet\'s thresholds from its configuration file' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l kubelet-config-dir -d 'The kubelet\'s folder of drop-ins' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l lead-margin -d 'By how much inherited memory thresholds are raised: 64Mi, 1% for percentages, or {quantity: 64Mi, percentage: 1%}' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l node-cgroup -d 'Take this control group for the node; its limit is the capacity' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l pods-cgroup -d 'The control group all pods live in, for allocatable memory' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l manifests -d 'A folder of pod manifests that are the workloads' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l prefer -d 'Evict first what matches, by command name or cgroup path (repeatable)' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l avoid -d 'Evict last what matches (repeatable)' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l ignore -d 'Never evict what matches (repeatable)' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l housekeeping-interval -d 'How often everything is read again and cross-checked' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l realtime-priority -d 'SCHED_FIFO priority of the guard thread; 0 for none' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l move-guard-to-root-cpu-group -d 'Leave a cpu group that grants no real time, with the guard thread alone' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l kernel-programs -d 'Load programs into the kernel; without them the guard polls' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l events -d 'Tell events, and serve them on the socket events.sock in the state directory' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l events-listen -d 'Serve events on a port of loopback too: 127.0.0.1:9753; none for none' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l host-root -d 'Where the machine\'s root file system is mounted' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l state-dir -d 'Ledger, lock, stop button and socket' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l journal -d 'Journal every input to this file, for brink replay' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l log-level -d 'error, warn, info, debug or trace' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -l log-format -d 'auto, text or json' -r
complete -c brink -n "__fish_brink_using_subcommand doctor" -s a -l all -d 'Say what was found of the checks that are well, too'
complete -c brink -n "__fish_brink_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brink -n "__fish_brink_using_subcommand completion" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand man" -l dir -d 'Write the page of every command into this folder instead' -r -F
complete -c brink -n "__fish_brink_using_subcommand man" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand demo-workload" -s h -l help -d 'Print help'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "run" -d 'Run the agent: watch the node, decide, and act if told to'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "demo" -d 'Watch a leak being caught, in control groups of its own'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "status" -d 'Show signals, thresholds, rung and mode of the running agent'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "top" -d 'Watch the node\'s room, who would go first and what happens, live'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "rank" -d 'Show who would go now, and why'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "explain" -d 'Explain why this one goes and that one does not, now or in a past decision'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "events" -d 'Show what happens and what has happened, event by event'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "incident" -d 'Show the last incidents, or the whole story of one: who was killed, by whom, why, and how sure that is'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "simulate" -d 'Decide step by step from scenario files, as the kubelet would'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "replay" -d 'Run a journal again and compare'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "pause" -d 'End enforcement at once, for a time or until further notice'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "resume" -d 'Enforce again'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "config" -d 'Check or show the configuration'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "doctor" -d 'Look at the machine: what works here, what does not, and what to do about it'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "completion" -d 'Print the completions of a shell'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "man" -d 'Print or write the manual pages'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "demo-workload" -d 'Take memory on purpose: a workload of the demonstration'
complete -c brink -n "__fish_brink_using_subcommand help; and not __fish_seen_subcommand_from run demo status top rank explain events incident simulate replay pause resume config doctor completion man demo-workload help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brink -n "__fish_brink_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "check" -d 'Say everything that is wrong or doubtful, and the thresholds that follow'
complete -c brink -n "__fish_brink_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "show" -d 'Show the configuration in force, and where each value comes from'
complete -c brink -n "__fish_brink_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "migrate" -d 'Bring files into the newest version of the configuration'
