import re
def sub(path, pairs):
    s=open(path).read()
    for a,b in pairs:
        assert s.count(a)>=1,(path,a,s.count(a))
        s=s.replace(a,b)
    open(path,'w').write(s)
sub('tests/relay.py',[
('port: int, *, was: int = 0, now: int = 0, change:','port: int, *, claims: int = 0, change:'),
('''    `was`: it swaps its own port, as 2 bytes after an IPv4 address that is mapped, for `now`; `change`: whatever
    else it does to what the client says.
''','''    `claims`: the port that it writes over its own in what a client says, where an address is in bytes;
    `change`: whatever else it does to that.
'''),
('''        if was:
            home = socket.inet_aton("127.0.0.1")
            data = data.replace(home + own.to_bytes(2, "big"), home + now.to_bytes(2, "big"))
''','''        if claims:
            home = socket.inet_aton("127.0.0.1")
            data = data.replace(home + own.to_bytes(2, "big"), home + claims.to_bytes(2, "big"))
'''),
])
sub('tests/native/test_tcp_store_hostile.py',[('relay(server.port, was=port, now=server.port)','relay(server.port, claims=server.port)')])
sub('distdbg/runtime/store/server.py',[
('''        self.port = int(''','''        served_as = read_served_as()
        self.port = int('''),
('served_as=read_served_as(),','served_as=served_as,'),
])
sub('tests/agent/test_api_hostile.py',[
('''    with pytest.raises(DistNetworkError, match="does not accept the token") as caught:
''','''    with pytest.raises(DistNetworkError, match="does not have the token") as caught:
'''),
('''def test_a_proof_is_good_for_one_connection(serving: Serving) -> None:
    with socket.create_connection(("127.0.0.1", serving.port), 5) as first:
        proof = protocol.prove(b"the token", json.loads(read_line(first))["nonce"])
        with socket.create_connection(("127.0.0.1", serving.port), 5) as second:
            read_line(second)
            second.sendall(protocol.encode({"proof": proof}))
            assert is_closed(second)
''','''def test_a_proof_is_good_for_one_connection(serving: Serving) -> None:
    address = f"127.0.0.1:{serving.port}"
    token = protocol.agent_token(b"the token", "r")
    with socket.create_connection(("127.0.0.1", serving.port), 5) as first:
        nonce = json.loads(read_line(first))["nonce"]
        ours = protocol.Proof(token, "r", nonce, protocol.make_nonce(), address)
        challenge = protocol.encode({"nonce": ours.client_nonce, "dialled": address})
        first.sendall(challenge)
        assert ours.is_of("server", json.loads(read_line(first)))
        proof = protocol.encode({"proof": ours.of("client")})
        with socket.create_connection(("127.0.0.1", serving.port), 5) as second:
            read_line(second)
            second.sendall(challenge)
            read_line(second)
            second.sendall(proof)
            assert is_closed(second)
        first.sendall(proof)
        assert json.loads(read_line(first)) == {"ok": True}


def test_a_stranger_who_hands_the_words_on_to_another_agent_gets_nothing(serving: Serving) -> None:
    with relay(serving.port) as (port, _):
        with pytest.raises(DistNetworkError, match="not at the address that was dialled") as caught:
            AgentClient.over_tcp("127.0.0.1", port, b"the token")
        assert "DISTDBG_SERVED_AS" in str(caught.value.hint)

    def claim(data: bytes) -> bytes:
        return data.replace(b":%d" % port, b":%d" % serving.port)

    with (
        relay(serving.port, change=claim) as (port, _),
        pytest.raises(DistNetworkError, match="does not have the token"),
    ):
        AgentClient.over_tcp("127.0.0.1", port, b"the token")
    with AgentClient.over_tcp("127.0.0.1", serving.port, b"the token") as client:
        assert client.ask("echo", a=1) == {"a": 1}


def test_a_server_that_asks_for_no_proof_hears_no_word(serving: Serving) -> None:
    said = b""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            nonlocal said
            sock, _ = listener.accept()
            with sock:
                sock.sendall(protocol.hello("r", "h", 1))
                said = read_line(sock)
                sock.sendall(protocol.encode({"ok": True}))
                said += read_line(sock)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(DistNetworkError, match="does not have the token"):
            AgentClient.over_tcp("127.0.0.1", listener.getsockname()[1], b"the token")
        thread.join()
    assert set(json.loads(said)) == {"nonce", "dialled"}


def test_the_token_of_one_run_is_worth_nothing_for_another(tmp_path: Path) -> None:
    assert protocol.agent_token(b"key", "r") != protocol.agent_token(b"key", "s")


def test_an_agent_of_an_older_version_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            sock, _ = listener.accept()
            with sock:
                hello = {"distdbg": "agent", "protocol": 1, "run": "r", "nonce": "n" * 32}
                sock.sendall(protocol.encode(hello))
                assert read_line(sock) == b""

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConfigError, match="speaks protocol 1, this distdbg speaks 2"):
            AgentClient.over_tcp("127.0.0.1", listener.getsockname()[1], b"the token")
        thread.join()


def test_idle_strangers_take_no_place_of_others(serving: Serving) -> None:
    def dial() -> socket.socket:
        return socket.create_connection(("127.0.0.1", serving.port), 5)

    idle = [dial() for _ in range(2 * api.MOST_CLIENTS)]
    try:
        with (
            AgentClient.over_tcp("127.0.0.1", serving.port, b"the token") as over_tcp,
            AgentClient.at(serving.path) as at_home,
        ):
            more = [dial() for _ in range(2 * api.MOST_CLIENTS)]
            idle += more
            assert over_tcp.ask("echo", a=1) == {"a": 1}
            assert at_home.ask("echo", a=2) == {"a": 2}
        read_line(idle[0])
        assert is_closed(idle[0])  # the oldest has gone
        assert b"nonce" in read_line(idle[-1])
    finally:
        for sock in idle:
            sock.close()
'''),
('''from distdbg.errors import ConfigError, DistNetworkError
''','''from distdbg.errors import ConfigError, DistNetworkError
from tests.relay import relay
'''),
])
sub('tests/agent/test_listen.py',[('match="does not accept the token"','match="does not have the token"')])
sub('tests/agent/test_live_feed.py',[('"protocol": 1, "run"','"protocol": protocol.PROTOCOL, "run"')])
