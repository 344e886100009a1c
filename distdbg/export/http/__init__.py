"""A small HTTP server for scrapers: a few pages, read only, for who may read them; and requests of ours.

    access    who may: a user of this host, or who has the token; pure
    in_time   what this process asks of others: answers that end in time
    peers     whose a loopback connection is, by the kernel's tables
    server    sockets, threads, limits;  request: one request after the other on a connection
    pages     what is answered, as bytes;  sd: targets for Prometheus' service discovery; pure

It knows nothing of ranks: whoever owns it gives it the pages.
"""
