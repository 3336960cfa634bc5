// Echo and sink server on uWebSockets itself. One process, one thread, as the others here.
//
// SIGTERM is not handled: its default action, to end the process at once, is what a benchmark wants.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "App.h"

namespace {

// What belongs to a connection: nothing.
struct Connection {};

constexpr unsigned int PAYLOAD_BYTES_MAX = 1024 * 1024;
constexpr unsigned short IDLE_TIMEOUT_S = 120;
// Past it, uWebSockets drops what a slow reader should get.
constexpr unsigned int BACKPRESSURE_BYTES_MAX = 64 * 1024 * 1024;

[[noreturn]] void refuse(const char *problem) {
    std::fprintf(stderr, "%s; usage: --port N --mode echo|sink\n", problem);
    std::exit(2);
}

template <typename OnMessage>
void serve(int port, OnMessage on_message) {
    uWS::App::WebSocketBehavior<Connection> behavior;
    behavior.compression = uWS::DISABLED;
    behavior.maxPayloadLength = PAYLOAD_BYTES_MAX;
    behavior.idleTimeout = IDLE_TIMEOUT_S;
    behavior.maxBackpressure = BACKPRESSURE_BYTES_MAX;
    behavior.message = on_message;
    uWS::App()
        .ws<Connection>("/*", std::move(behavior))
        .listen("127.0.0.1", port,
                [](us_listen_socket_t *listener) {
                    if (listener == nullptr) {
                        std::fprintf(stderr, "the port cannot be taken\n");
                        std::exit(1);
                    }
                    auto *socket = reinterpret_cast<us_socket_t *>(listener);
                    std::printf("listening on 127.0.0.1:%d\n", us_socket_local_port(0, socket));
                    std::fflush(stdout);
                })
        .run();
}

}  // namespace

int main(int count, char **arguments) {
    int port = -1;
    std::string_view mode;
    for (int i = 1; i < count; i += 2) {
        if (i + 1 == count) {
            refuse("each flag needs a value");
        }
        if (std::strcmp(arguments[i], "--port") == 0) {
            port = std::atoi(arguments[i + 1]);
        } else if (std::strcmp(arguments[i], "--mode") == 0) {
            mode = arguments[i + 1];
        } else {
            refuse("unknown flag");
        }
    }
    if (port < 0 || port > 65535) {
        refuse("--port from 0 to 65535 is needed");
    }
    if (mode == "echo") {
        serve(port, [](auto *socket, std::string_view message, uWS::OpCode opcode) {
            socket->send(message, opcode);
        });
    } else if (mode == "sink") {
        serve(port, [](auto *, std::string_view, uWS::OpCode) {});
    } else {
        refuse("--mode echo or sink is needed");
    }
}
