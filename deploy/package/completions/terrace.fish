# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_terrace_global_optspecs
    string join \n p/port= l/listen= U/udp-port= public-udp Z/enable-ssl s/unix-socket= a/unix-mask= c/conn-limit= b/listen-backlog= B/protocol= R/max-reqs-per-event= Y/auth-file= S/enable-sasl sasl-passwords= m/memory-limit= M/disable-evictions I/max-item-size= C/disable-cas t/threads= k/lock-memory L/enable-largepages tier= state= roster= tier-wait= durability= on-mismatch= write-budget= tier-full= write-policy= stop-timeout= background-threads= io-engine= A/enable-shutdown F/disable-flush-all X/disable-dumping D/prefix-delimiter= W/disable-watch u/user= d/daemon P/pidfile= r/enable-coredumps log-format= v/verbose admin= admin-token-file= admin-host= config= h/help V/version i/license f/slab-growth-factor= n/slab-min-size= e/memory-file= N/napi-ids= o/extended=
end

function __fish_terrace_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_terrace_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_terrace_using_subcommand
    set -l cmd (__fish_terrace_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c terrace -n "__fish_terrace_needs_command" -s p -l port -d 'TCP port; 0 turns TCP off, -1 takes any that is free [11211]' -r
complete -c terrace -n "__fish_terrace_needs_command" -s l -l listen -d 'where: ADDR[:PORT],...; before one notls:, btls:, mtls:, proto[NAME]:, tag[NAME]: [all addresses]' -r
complete -c terrace -n "__fish_terrace_needs_command" -s U -l udp-port -d 'UDP port; 0 turns UDP off; without -p it is the TCP port too [0]' -r
complete -c terrace -n "__fish_terrace_needs_command" -s s -l unix-socket -d 'listen on this Unix socket, and on no network' -r -F
complete -c terrace -n "__fish_terrace_needs_command" -s a -l unix-mask -d 'permissions of the Unix socket, in octal [700]' -r
complete -c terrace -n "__fish_terrace_needs_command" -s c -l conn-limit -d 'connections at once [1024]' -r
complete -c terrace -n "__fish_terrace_needs_command" -s b -l listen-backlog -d 'length of the kernel\'s queue of new connections [1024]' -r
complete -c terrace -n "__fish_terrace_needs_command" -s B -l protocol -d 'what connections speak: auto, ascii or binary [auto]' -r -f -a "auto\t''
ascii\t''
binary\t''"
complete -c terrace -n "__fish_terrace_needs_command" -s R -l max-reqs-per-event -d 'requests of one connection before the others get their turn [20]' -r
complete -c terrace -n "__fish_terrace_needs_command" -s Y -l auth-file -d 'ASCII authentication: lines of user:password; read again at SIGHUP' -r -F
complete -c terrace -n "__fish_terrace_needs_command" -l sasl-passwords -d 'the same, with the file named here' -r -F
complete -c terrace -n "__fish_terrace_needs_command" -s m -l memory-limit -d 'DRAM for all that grows with data: megabytes, a suffix (4g), or auto: a share of what there is [64]' -r
complete -c terrace -n "__fish_terrace_needs_command" -s I -l max-item-size -d 'the longest value, 1k to 1g; an eighth of -m, or of all tiers, at most [1m]' -r
complete -c terrace -n "__fish_terrace_needs_command" -s t -l threads -d 'worker threads, 1 to 256 [4]' -r
complete -c terrace -n "__fish_terrace_needs_command" -l tier -d 'a drive, repeatable: ssd:/data/cache:512g, nvme-tcp:HOST/NQN; ,profile=FILE; ,below: under others [none]' -r
complete -c terrace -n "__fish_terrace_needs_command" -l state -d 'where the file lies that makes a crash come back warm: a folder on a tmpfs [/dev/shm]' -r -f -a "(__fish_complete_directories)"
complete -c terrace -n "__fish_terrace_needs_command" -l roster -d 'keeps which tiers belong together; by itself $STATE_DIRECTORY/roster, where that is set' -r -F
complete -c terrace -n "__fish_terrace_needs_command" -l tier-wait -d 'how long a start waits for a tier that is not there, before it goes on without [10]' -r
complete -c terrace -n "__fish_terrace_needs_command" -l durability -d 'what comes back warm: process (any end of it) or strict (a power loss too; slower) [process]' -r -f -a "process\t''
strict\t''"
complete -c terrace -n "__fish_terrace_needs_command" -l on-mismatch -d 'where a start erases what another could keep: cold does it, refuse does not start [cold]' -r -f -a "cold\t''
refuse\t''"
complete -c terrace -n "__fish_terrace_needs_command" -l write-budget -d 'how much each drive may be written, or each its own: 1dwpd, 40MB/s, unlimited [unlimited]' -r
complete -c terrace -n "__fish_terrace_needs_command" -l tier-full -d 'a tier is full when records take so much of it; less holds less, and is written less [80]' -r
complete -c terrace -n "__fish_terrace_needs_command" -l write-policy -d 'what full tiers admit and reinsert: all-once, all-twice, reused-once, reused-none [all-once]' -r -f -a "all-once\t''
all-twice\t''
reused-once\t''
reused-none\t''"
complete -c terrace -n "__fish_terrace_needs_command" -l stop-timeout -d 'how long a stop may take to write everything out [25]' -r
complete -c terrace -n "__fish_terrace_needs_command" -l background-threads -d 'threads that write and take back what is on drives [2 to 4, by -t, cores, tiers]' -r
complete -c terrace -n "__fish_terrace_needs_command" -l io-engine -d 'how drives are read: auto, io_uring or pool (of threads) [auto]' -r -f -a "auto\t''
io_uring\t''
pool\t''"
complete -c terrace -n "__fish_terrace_needs_command" -s D -l prefix-delimiter -d 'count commands by what stands before this in keys, for `stats detail dump` [:]' -r
complete -c terrace -n "__fish_terrace_needs_command" -s u -l user -d 'give up root for this user; root must say which, `-u root` to stay' -r -f -a "(__fish_complete_users)"
complete -c terrace -n "__fish_terrace_needs_command" -s P -l pidfile -d 'write the process id there' -r -F
complete -c terrace -n "__fish_terrace_needs_command" -l log-format -d 'lines of the log: text (time, level, message) or json [text]' -r -f -a "text\t''
json\t''"
complete -c terrace -n "__fish_terrace_needs_command" -l admin -d 'serve a live page, metrics and status over HTTP there, or on a Unix socket (a path) [off]' -r
complete -c terrace -n "__fish_terrace_needs_command" -l admin-token-file -d 'the admin page asks for the token in this file: in a form, as a password, or in `Authorization: Bearer`' -r -F
complete -c terrace -n "__fish_terrace_needs_command" -l admin-host -d 'take this name for the admin page\'s `Host`, too; may be repeated' -r
complete -c terrace -n "__fish_terrace_needs_command" -l config -d 'read settings from this TOML file; what the command line says wins' -r -F
complete -c terrace -n "__fish_terrace_needs_command" -s f -l slab-growth-factor -d 'shown by `stats settings`; there are no slab classes [1.25]' -r
complete -c terrace -n "__fish_terrace_needs_command" -s n -l slab-min-size -d 'shown by `stats settings`; there are no slab classes [48]' -r
complete -c terrace -n "__fish_terrace_needs_command" -s e -l memory-file -d 'every restart keeps the tiers\' content: see --tier and --state' -r -F
complete -c terrace -n "__fish_terrace_needs_command" -s N -l napi-ids -d 'workers share connections evenly [0]' -r
complete -c terrace -n "__fish_terrace_needs_command" -s o -l extended -d 'memcached\'s extended options, listed below' -r -f -a "ext_path=\t''
idle_timeout=\t''
read_buf_mem_limit=\t''
maxconns_fast\t''
track_sizes\t''
ssl_chain_cert=\t''
ssl_key=\t''
ssl_keyformat=\t''
ssl_verify_mode=\t''
ssl_ca_cert=\t''
ssl_ciphers=\t''
ssl_min_version=\t''
ssl_session_cache\t''
no_maxconns_fast\t''
no_modern\t''"
complete -c terrace -n "__fish_terrace_needs_command" -l public-udp -d 'UDP replies of any length to public addresses; else 3 times the request at most'
complete -c terrace -n "__fish_terrace_needs_command" -s Z -l enable-ssl -d 'speak TLS, with the certificate of -o ssl_chain_cert and ssl_key'
complete -c terrace -n "__fish_terrace_needs_command" -s S -l enable-sasl -d 'SASL PLAIN, binary protocol only; lines of user:password in the file that MEMCACHED_SASL_PWDB names'
complete -c terrace -n "__fish_terrace_needs_command" -s M -l disable-evictions -d 'answer an error when full instead of evicting'
complete -c terrace -n "__fish_terrace_needs_command" -s C -l disable-cas -d 'keep no CAS numbers'
complete -c terrace -n "__fish_terrace_needs_command" -s k -l lock-memory -d 'lock all memory'
complete -c terrace -n "__fish_terrace_needs_command" -s L -l enable-largepages -d 'huge pages for records in DRAM that are the process\'s own, not the state\'s'
complete -c terrace -n "__fish_terrace_needs_command" -s A -l enable-shutdown -d 'let clients use `shutdown`'
complete -c terrace -n "__fish_terrace_needs_command" -s F -l disable-flush-all -d 'refuse `flush_all`'
complete -c terrace -n "__fish_terrace_needs_command" -s X -l disable-dumping -d 'refuse commands that list keys or their prefixes'
complete -c terrace -n "__fish_terrace_needs_command" -s W -l disable-watch -d 'refuse `watch`'
complete -c terrace -n "__fish_terrace_needs_command" -s d -l daemon -d 'run in the background, once everything is ready'
complete -c terrace -n "__fish_terrace_needs_command" -s r -l enable-coredumps -d 'allow core dumps of any size'
complete -c terrace -n "__fish_terrace_needs_command" -s v -l verbose -d 'log more; -vv and -vvv still more'
complete -c terrace -n "__fish_terrace_needs_command" -s h -l help -d 'print this and exit'
complete -c terrace -n "__fish_terrace_needs_command" -s V -l version -d 'print the version and exit'
complete -c terrace -n "__fish_terrace_needs_command" -s i -l license -d 'print the licence and exit'
complete -c terrace -n "__fish_terrace_needs_command" -f -a "serve" -d 'The server; may be left out'
complete -c terrace -n "__fish_terrace_needs_command" -f -a "plan" -d 'Says what a cache needs: DRAM, flash, nodes; how it will do; what it costs; and the command line for it'
complete -c terrace -n "__fish_terrace_needs_command" -f -a "probe" -d 'Measures what media can do: drives, files, and DRAM beside them. A new file is made and removed again; what holds anything is only read, unless --destroy'
complete -c terrace -n "__fish_terrace_needs_command" -f -a "bench" -d 'Puts load on a memcached server and checks every value that comes back'
complete -c terrace -n "__fish_terrace_needs_command" -f -a "tiers" -d 'Shows the tiers of a running server, adds tiers, and takes tiers out of use while it runs'
complete -c terrace -n "__fish_terrace_needs_command" -f -a "export" -d 'Shares files and block devices with other machines over NVMe/TCP, until it is stopped'
complete -c terrace -n "__fish_terrace_needs_command" -f -a "convert" -d 'Writes the settings of memcached\'s service as settings of terrace'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s p -l port -d 'TCP port; 0 turns TCP off, -1 takes any that is free [11211]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s l -l listen -d 'where: ADDR[:PORT],...; before one notls:, btls:, mtls:, proto[NAME]:, tag[NAME]: [all addresses]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s U -l udp-port -d 'UDP port; 0 turns UDP off; without -p it is the TCP port too [0]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s s -l unix-socket -d 'listen on this Unix socket, and on no network' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s a -l unix-mask -d 'permissions of the Unix socket, in octal [700]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s c -l conn-limit -d 'connections at once [1024]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s b -l listen-backlog -d 'length of the kernel\'s queue of new connections [1024]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s B -l protocol -d 'what connections speak: auto, ascii or binary [auto]' -r -f -a "auto\t''
ascii\t''
binary\t''"
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s R -l max-reqs-per-event -d 'requests of one connection before the others get their turn [20]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s Y -l auth-file -d 'ASCII authentication: lines of user:password; read again at SIGHUP' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l sasl-passwords -d 'the same, with the file named here' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s m -l memory-limit -d 'DRAM for all that grows with data: megabytes, a suffix (4g), or auto: a share of what there is [64]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s I -l max-item-size -d 'the longest value, 1k to 1g; an eighth of -m, or of all tiers, at most [1m]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s t -l threads -d 'worker threads, 1 to 256 [4]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l tier -d 'a drive, repeatable: ssd:/data/cache:512g, nvme-tcp:HOST/NQN; ,profile=FILE; ,below: under others [none]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l state -d 'where the file lies that makes a crash come back warm: a folder on a tmpfs [/dev/shm]' -r -f -a "(__fish_complete_directories)"
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l roster -d 'keeps which tiers belong together; by itself $STATE_DIRECTORY/roster, where that is set' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l tier-wait -d 'how long a start waits for a tier that is not there, before it goes on without [10]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l durability -d 'what comes back warm: process (any end of it) or strict (a power loss too; slower) [process]' -r -f -a "process\t''
strict\t''"
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l on-mismatch -d 'where a start erases what another could keep: cold does it, refuse does not start [cold]' -r -f -a "cold\t''
refuse\t''"
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l write-budget -d 'how much each drive may be written, or each its own: 1dwpd, 40MB/s, unlimited [unlimited]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l tier-full -d 'a tier is full when records take so much of it; less holds less, and is written less [80]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l write-policy -d 'what full tiers admit and reinsert: all-once, all-twice, reused-once, reused-none [all-once]' -r -f -a "all-once\t''
all-twice\t''
reused-once\t''
reused-none\t''"
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l stop-timeout -d 'how long a stop may take to write everything out [25]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l background-threads -d 'threads that write and take back what is on drives [2 to 4, by -t, cores, tiers]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l io-engine -d 'how drives are read: auto, io_uring or pool (of threads) [auto]' -r -f -a "auto\t''
io_uring\t''
pool\t''"
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s D -l prefix-delimiter -d 'count commands by what stands before this in keys, for `stats detail dump` [:]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s u -l user -d 'give up root for this user; root must say which, `-u root` to stay' -r -f -a "(__fish_complete_users)"
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s P -l pidfile -d 'write the process id there' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l log-format -d 'lines of the log: text (time, level, message) or json [text]' -r -f -a "text\t''
json\t''"
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l admin -d 'serve a live page, metrics and status over HTTP there, or on a Unix socket (a path) [off]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l admin-token-file -d 'the admin page asks for the token in this file: in a form, as a password, or in `Authorization: Bearer`' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l admin-host -d 'take this name for the admin page\'s `Host`, too; may be repeated' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l config -d 'read settings from this TOML file; what the command line says wins' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s f -l slab-growth-factor -d 'shown by `stats settings`; there are no slab classes [1.25]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s n -l slab-min-size -d 'shown by `stats settings`; there are no slab classes [48]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s e -l memory-file -d 'every restart keeps the tiers\' content: see --tier and --state' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s N -l napi-ids -d 'workers share connections evenly [0]' -r
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s o -l extended -d 'memcached\'s extended options, listed below' -r -f -a "ext_path=\t''
idle_timeout=\t''
read_buf_mem_limit=\t''
maxconns_fast\t''
track_sizes\t''
ssl_chain_cert=\t''
ssl_key=\t''
ssl_keyformat=\t''
ssl_verify_mode=\t''
ssl_ca_cert=\t''
ssl_ciphers=\t''
ssl_min_version=\t''
ssl_session_cache\t''
no_maxconns_fast\t''
no_modern\t''"
complete -c terrace -n "__fish_terrace_using_subcommand serve" -l public-udp -d 'UDP replies of any length to public addresses; else 3 times the request at most'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s Z -l enable-ssl -d 'speak TLS, with the certificate of -o ssl_chain_cert and ssl_key'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s S -l enable-sasl -d 'SASL PLAIN, binary protocol only; lines of user:password in the file that MEMCACHED_SASL_PWDB names'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s M -l disable-evictions -d 'answer an error when full instead of evicting'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s C -l disable-cas -d 'keep no CAS numbers'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s k -l lock-memory -d 'lock all memory'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s L -l enable-largepages -d 'huge pages for records in DRAM that are the process\'s own, not the state\'s'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s A -l enable-shutdown -d 'let clients use `shutdown`'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s F -l disable-flush-all -d 'refuse `flush_all`'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s X -l disable-dumping -d 'refuse commands that list keys or their prefixes'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s W -l disable-watch -d 'refuse `watch`'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s d -l daemon -d 'run in the background, once everything is ready'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s r -l enable-coredumps -d 'allow core dumps of any size'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s v -l verbose -d 'log more; -vv and -vvv still more'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s h -l help -d 'print this and exit'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s V -l version -d 'print the version and exit'
complete -c terrace -n "__fish_terrace_using_subcommand serve" -s i -l license -d 'print the licence and exit'
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l items -d 'Records to be cached; beside --server instead of those that it holds' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l key-bytes -d 'Bytes per key, in the mean [default: 20]' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l value-bytes -d 'Bytes per value, in the mean' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l ttl -d 'Time to live [default: none]' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l trace -d 'A trace: CSV of time, object, size, or libcachesim\'s binary form; .zst too' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l server -d 'HOST:PORT or Unix socket of a server that has such data now, memcached or Terrace' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l rate -d 'Requests per second [default: 100k, or those of the server]' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l get-percent -d 'Reads per hundred requests [default: 90, or those of the server]' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l gets -d 'Reads per second, instead of --rate and --get-percent' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l sets -d 'Stores per second' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l popularity -d 'How popular records are [default: zipf-mandelbrot]; a trace knows itself' -r -f -a "uniform\t'All alike'
zipf\t'Zipf\'s law'
zipf-mandelbrot\t'Density 1 / (x + beta)^s, as Facebook\'s ETC'"
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l exponent -d 'Exponent of popularity [default: 1.0 for zipf, 2.5 for zipf-mandelbrot]' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l beta -d 'Offset of zipf-mandelbrot, as a share of the key range [default: 0.03]' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l dram -d 'DRAM per node; a bare number is GiB [default: 64g, or that of the server]' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -s m -l memory-limit -d 'The same as the server\'s -m has it: a bare number is MiB' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l drive -d 'A drive class (--classes lists them), or a profile written by `terrace probe` (FILE.toml)' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l drives -d 'Drives per node [default: 2, or as many as there are --path]' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l path -d 'A drive or a file on it, for the command line; may be repeated, once for each' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l dwpd -d 'Whole drives that may be written per day for five years, as its maker says' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l tier-size -d 'What of each drive is a tier: a size, or `all` [default: as much as the records need]' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l tier-full -d 'Percent of a tier that records may take (--tier-full of the server)' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l network -d 'Network per node; a bare number is Gbit/s [default: 25]' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l cores -d 'Cores per node, each with a worker thread (-t)' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l nodes -d 'Plan for so many nodes instead of as few as suffice' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l price-dram -d 'What a GiB of DRAM costs' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l price-drive -d 'What a drive costs' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l price-node -d 'What a node costs without the two' -r
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l client-flags -d 'Clients set flags'
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l classes -d 'Print the classes of drives and what is assumed of them'
complete -c terrace -n "__fish_terrace_using_subcommand plan" -l json -d 'Print one JSON object; docs/plan.md describes it'
complete -c terrace -n "__fish_terrace_using_subcommand probe" -l size -d 'Size of a new file, and of DRAM: MiB, or with a suffix (512m, 4g). Files for processes take as much again, memory of 32 processes four times as much' -r
complete -c terrace -n "__fish_terrace_using_subcommand probe" -l seconds -d 'Seconds per medium for all measurements, filling a new file aside' -r
complete -c terrace -n "__fish_terrace_using_subcommand probe" -l lanes -d 'Access lanes of the medium; inferred if not given' -r
complete -c terrace -n "__fish_terrace_using_subcommand probe" -l max -d 'The most the medium can do in MB/s; inferred if not given' -r
complete -c terrace -n "__fish_terrace_using_subcommand probe" -l profile -d 'Write the profile of the (only) drive there, for --tier and for `terrace plan`' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand probe" -l svg -d 'Draw the curves of all media side by side' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand probe" -l json -d 'Write everything that was measured there' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand probe" -l destroy -d 'Overwrite what the paths hold'
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l server -d 'The server: HOST:PORT, or the path of a Unix socket' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l first -d 'Number of the first record; numbers decide keys' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l records -d 'How many records there are' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l among -d 'The numbers of the records, one a line, where they are not in a row' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l key-bytes -d 'Bytes per key, 16 to 250' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l value-bytes -d 'Bytes per value' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l sizes -d 'How long keys and values are' -r -f -a "fixed\t'As --key-bytes and --value-bytes say'
etc\t'As in Facebook\'s ETC pool, 230 bytes per record in the mean'"
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l trace -d 'The trace that `replay` reads: libcachesim\'s CSV or binary form, plain or .zst' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l requests -d 'Requests to send; each record once if not given, or for --seconds' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l seconds -d 'How long to send, for each point of a series' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l warm-up -d 'Seconds before that, which are not reported' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l window -d 'Seconds of the windows of which the longest steady stretch is reported, with --rate or --search all: 1 from --seconds 5 on if not given; 0 for none' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -s c -l connections -d 'Connections, all threads together; several numbers for a series' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -s t -l threads -d 'Threads of the generator' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -s d -l depth -d 'Requests in flight per connection; several numbers for a series' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l rate -d 'Open loop: requests per second, all connections together; several for a series. Latencies count from when a request was due, however late the server let it be sent. Costs the generator a core while it waits' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l gaps -d 'The times between requests of an open loop' -r -f -a "even\t'All alike'
etc\t'As in Facebook\'s ETC pool'"
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l search -d 'Searches the highest rate that keeps a latency, such as mean=1ms or p99=500us' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l protocol -d 'What to speak' -r -f -a "ascii\t''
meta\t''
binary\t''"
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l tls-ca -d 'Speak TLS with a server whose certificate these CAs vouch for (a PEM file)' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l tls-name -d 'The name in the server\'s certificate, if it is not the address' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l multiget -d 'Keys per read' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l get-percent -d 'Reads per hundred requests of `mixed`' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l delete-percent -d 'Deletes per hundred requests of `mixed`' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l back-end -d 'Store what was missed after so many microseconds, the latency of a back end; `replay` always does, at once if not told' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l popularity -d 'How `get`, `overwrite` and `mixed` choose records' -r -f -a "uniform\t'All alike'
hot\t'80 % of requests for 20 % of records'
zipf\t'Zipf\'s law'
zipf-mandelbrot\t'Density 1 / (x + beta)^s over the key range, as Facebook\'s ETC'"
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l exponent -d 'The exponent of --popularity zipf (1.0 if not given) and zipf-mandelbrot (2.5)' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l beta -d 'The offset of --popularity zipf-mandelbrot, as a share of the key range' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l ttl -d 'Time to live of stored records in seconds; 0 for ever' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l flags -d 'Client flags of stored records' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l version-of-values -d 'Version of stored values, and what read ones must have' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l seed -d 'Start of all random choices' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l pid -d 'The server\'s process; taken from its statistics if not given' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l html -d 'Write a page with tables and curves to this file, too' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l compare -d 'Start Terrace and the server of this command, and compare them by turns. {dir} in a command stands for a folder of the server\'s own, {socket} for the path of a Unix socket to listen on; without it, -l 127.0.0.1 -p -1 are added' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l terrace -d 'Terrace\'s command for --compare; `terrace` without a path is this program' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l rounds -d 'Turns that each server of --compare has' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l server-cpus -d 'Cores of both servers of --compare' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l cpus -d 'Cores of the generator' -r
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l dir -d 'Folder of the files of servers that --compare starts' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l precondition -d 'Before anything else, stores each record once and overwrites them until reclaim runs steadily'
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l batch -d 'Wait for all replies of --depth requests before the next so many. With --rate so many are due at once'
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l tls -d 'Speak TLS with whoever answers'
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l any-version -d 'Accept each version of a value'
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l blind -d 'Don\'t look at values'
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l progress -d 'Tell on standard error how far it is, also where that is no terminal'
complete -c terrace -n "__fish_terrace_using_subcommand bench" -l json -d 'Print JSON'
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and not __fish_seen_subcommand_from status add drain cancel remove" -l admin -d 'Admin port of the server, or the path of its Unix socket (default: as its settings have it)' -r
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and not __fish_seen_subcommand_from status add drain cancel remove" -l admin-token-file -d 'File with the token that the admin port asks for (default: as the settings have it)' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and not __fish_seen_subcommand_from status add drain cancel remove" -l config -d 'Settings of the server (default: /etc/terrace.toml, unless --admin is given)' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and not __fish_seen_subcommand_from status add drain cancel remove" -f -a "status" -d 'Shows what each tier is doing and holds, and how far drains are'
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and not __fish_seen_subcommand_from status add drain cancel remove" -f -a "add" -d 'Adds a drive as a tier, beside those of the last level. It stays one until the server restarts: name it in the settings, too'
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and not __fish_seen_subcommand_from status add drain cancel remove" -f -a "drain" -d 'Moves the records of a tier to other tiers. It takes no new ones until that is cancelled or the server restarts'
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and not __fish_seen_subcommand_from status add drain cancel remove" -f -a "cancel" -d 'Cancels the drain of a tier, which takes new records again'
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and not __fish_seen_subcommand_from status add drain cancel remove" -f -a "remove" -d 'Takes an empty tier out of the set; from then on the server does not use its drive'
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from status" -l admin -d 'Admin port of the server, or the path of its Unix socket (default: as its settings have it)' -r
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from status" -l admin-token-file -d 'File with the token that the admin port asks for (default: as the settings have it)' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from status" -l config -d 'Settings of the server (default: /etc/terrace.toml, unless --admin is given)' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from status" -l json -d 'Write JSON, as `GET /tiers` of the admin port has it'
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from add" -l admin -d 'Admin port of the server, or the path of its Unix socket (default: as its settings have it)' -r
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from add" -l admin-token-file -d 'File with the token that the admin port asks for (default: as the settings have it)' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from add" -l config -d 'Settings of the server (default: /etc/terrace.toml, unless --admin is given)' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from add" -l yes -d 'Overwrite what the drive holds of an earlier tier'
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from drain" -l admin -d 'Admin port of the server, or the path of its Unix socket (default: as its settings have it)' -r
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from drain" -l admin-token-file -d 'File with the token that the admin port asks for (default: as the settings have it)' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from drain" -l config -d 'Settings of the server (default: /etc/terrace.toml, unless --admin is given)' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from drain" -l force -d 'Drop the oldest records where no other tier has room'
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from drain" -l wait -d 'Wait until the tier is empty, and show how far the drain is; it goes on if this program is ended'
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from cancel" -l admin -d 'Admin port of the server, or the path of its Unix socket (default: as its settings have it)' -r
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from cancel" -l admin-token-file -d 'File with the token that the admin port asks for (default: as the settings have it)' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from cancel" -l config -d 'Settings of the server (default: /etc/terrace.toml, unless --admin is given)' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from remove" -l admin -d 'Admin port of the server, or the path of its Unix socket (default: as its settings have it)' -r
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from remove" -l admin-token-file -d 'File with the token that the admin port asks for (default: as the settings have it)' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from remove" -l config -d 'Settings of the server (default: /etc/terrace.toml, unless --admin is given)' -r -F
complete -c terrace -n "__fish_terrace_using_subcommand tiers; and __fish_seen_subcommand_from remove" -l yes -d 'Remove it with the records that it holds, which are lost'
complete -c terrace -n "__fish_terrace_using_subcommand export" -l listen -d 'Address to listen on, may be repeated; 127.0.0.1 without any, port 4420 unless it is given' -r
complete -c terrace -n "__fish_terrace_using_subcommand export" -l host -d 'NQN of a host that may connect, may be repeated; all may without any' -r
complete -c terrace -n "__fish_terrace_using_subcommand export" -l nqn -d 'NQN of what is exported (default: of the machine and the first path)' -r
complete -c terrace -n "__fish_terrace_using_subcommand export" -l threads -d 'Threads that serve connections, 1 to 64 (default: one for each core, at most 4)' -r
complete -c terrace -n "__fish_terrace_using_subcommand export" -l connections -d 'Connections at a time: each host has one, and one more for each of its queues' -r
complete -c terrace -n "__fish_terrace_using_subcommand export" -l buffers -d 'Memory for data on their way, of all hosts' -r
complete -c terrace -n "__fish_terrace_using_subcommand export" -l admin -d 'Serve metrics at /metrics there: ADDR:PORT, or the path of a Unix socket' -r
complete -c terrace -n "__fish_terrace_using_subcommand export" -l admin-token-file -d 'File with the token that the admin port asks for' -r -F
