"""A reward server: it scores what it is asked about."""

import argparse
import socketserver


class Score(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(f"{len(line.split())}\n".encode())


parser = argparse.ArgumentParser()
parser.add_argument("--host")
parser.add_argument("--port", type=int)
options = parser.parse_args()
socketserver.ThreadingTCPServer((options.host, options.port), Score).serve_forever()
