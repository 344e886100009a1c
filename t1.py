def sub(path, pairs):
    s=open(path).read()
    for a,b in pairs:
        assert s.count(a)==1,(path,a,s.count(a))
        s=s.replace(a,b)
    open(path,'w').write(s)
sub('tests/native/test_tcp_store_hostile.py',[
('''from distdbg.native import StoreServer
from distdbg.runtime.store import TCPStore

TOKEN = b"the right one"
''','''from distdbg.native import StoreServer
from distdbg.runtime.rendezvous.served import peer_address
from distdbg.runtime.rendezvous.token import derive_token
from distdbg.runtime.store import TCPStore
from tests.relay import relay

TOKEN = b"the right one"
HELLO = b"distdbgS" + struct.pack("<II", 2, 0)
'''),
('''def prove(sock: socket.socket, token: bytes = TOKEN) -> bytes:
    """The client's side of the handshake, written from the protocol's description."""
    hello = receive(sock, 48)
    assert hello[:8] == b"distdbgS"
    nonce = os.urandom(32)
    proof = hmac.digest(token, b"client" + hello[16:] + nonce, "sha256")
    sock.sendall(b"distdbgC" + struct.pack("<II", 1, 0) + nonce + proof)
    verdict = receive(sock, 48)
    if verdict[0]:
        assert verdict[16:] == hmac.digest(token, b"server" + hello[16:] + nonce, "sha256")
    return verdict
''','''def prove(sock: socket.socket, key: bytes = TOKEN) -> bool:
    """The client's side of the handshake, written from the protocol's description.

    False: the server does not know the token; this client goes on all the same.
    """
    hello = receive(sock, 48)
    assert hello[:16] == HELLO
    nonce, address = os.urandom(32), peer_address(sock)
    sock.sendall(b"distdbgC" + struct.pack("<II", 2, 0) + nonce + address + bytes(6))
    verdict = receive(sock, 48)
    assert verdict[0] == 1
    about = hello[16:] + nonce + address + verdict[8:16]
    token = derive_token(key, "store")
    sock.sendall(hmac.digest(token, b"distdbg store 2 client" + about, "sha256"))
    return verdict[16:] == hmac.digest(token, b"distdbg store 2 server" + about, "sha256")
'''),
('''        assert prove(sock)[:4] == b"\\1\\0\\0\\0"
''','''        assert prove(sock)
'''),
('''        assert prove(sock, b"a wrong one") == b"\\0" * 8 + struct.pack(
            "<II", 65536, 64 << 20
        ) + bytes(32)
        assert sock.recv(1) == b""
''','''        assert not prove(sock, b"a wrong one")
        assert sock.recv(1) == b""
'''),
('''def test_an_impostor_that_accepts_everybody_is_refused() -> None:
''','''def test_a_client_says_no_more_than_a_nonce_to_an_impostor() -> None:
'''),
('''    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept_all() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.sendall(b"distdbgS" + struct.pack("<II", 1, 0) + os.urandom(32))
                receive(sock, 80)
                sock.sendall(struct.pack("<IIII", 1, 0, 1 << 16, 1 << 26) + os.urandom(32))
                receive(sock, 1)
''','''    said = b""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept_all() -> None:
            nonlocal said
            sock, _ = listener.accept()
            with sock:
                sock.sendall(HELLO + os.urandom(32))
                said = receive(sock, 72)
                sock.sendall(struct.pack("<IIII", 1, 0, 1 << 16, 1 << 26) + os.urandom(32))
                said += receive(sock, 1)
'''),
('''            TCPStore("127.0.0.1", listener.getsockname()[1], timeout=5, _token=TOKEN)
        thread.join()


def test_what_is_no_store''','''            TCPStore("127.0.0.1", listener.getsockname()[1], timeout=5, _token=TOKEN)
        thread.join()
    assert len(said) == 72


def test_a_stranger_who_hands_a_handshake_on_to_another_store_gets_nothing(
    server: TCPStore,
) -> None:
    with relay(server.port) as (port, _):
        with pytest.raises(DistNetworkError, match="not at the address that was dialled") as caught:
            TCPStore("127.0.0.1", port, timeout=5, _token=TOKEN)
        assert "DISTDBG_SERVED_AS" in str(caught.value)
    with relay(server.port, was=port, now=server.port) as (port, _):  # it corrects the address
        with pytest.raises(DistNetworkError, match="does not know the token"):
            TCPStore("127.0.0.1", port, timeout=5, _token=TOKEN)
    assert_serves(server)


def test_a_tunnel_of_ones_own_is_named_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with relay(0) as (port, to):
        monkeypatch.setenv("DISTDBG_SERVED_AS", f"127.0.0.1:{port}")
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, _token=TOKEN)
        to(store.port)
        other = TCPStore("127.0.0.1", port, timeout=5, _token=TOKEN)
        other.set("came", "through")
        assert store.get("came") == b"through"
        other.close()
        store.close()


def test_a_client_of_an_older_version_is_told_so(server: TCPStore) -> None:
    with connect(server.port) as sock:
        assert struct.unpack_from("<I", receive(sock, 48), 8) == (2,)  # which it refuses by itself
        sock.sendall(b"distdbgC" + struct.pack("<II", 1, 0) + bytes(64))
        assert receive(sock, 48)[:4] == b"\\2\\0\\0\\0"
        assert sock.recv(1) == b""


def test_a_server_of_an_older_version_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.sendall(b"distdbgS" + struct.pack("<II", 1, 0) + os.urandom(32))
                assert receive(sock, 1) == b""

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(DistNetworkError, match=r"speaks version 1 .*, this process version 2"):
            TCPStore("127.0.0.1", listener.getsockname()[1], timeout=5, _token=TOKEN)
        thread.join()


def test_what_is_no_store'''),
])
