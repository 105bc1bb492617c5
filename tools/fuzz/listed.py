"""Which property tests are about bytes that come before anybody has proved anything, port by port."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fuzzed:
    """A test of a crate: `target` is the name of its `cargo test` program, `name` the test's path in it."""

    port: str
    crate: str
    target: str
    name: str
    # One input of so many: 10 where an input is a whole dialogue, 100 where it is a handshake of TLS.
    share: int = 1

    def inputs(self, asked):
        """How many inputs it gets when `asked` are asked for."""
        return -(-asked // self.share)


DIALOGUE, HANDSHAKE = 10, 100

# The ones that take longest come first: the last of many that run side by side should be a short one.
LISTED = [
    Fuzzed("TLS of all ports", "transport", "channels", "damaged_handshakes_are_refused", HANDSHAKE),
    Fuzzed("TLS of all ports", "transport", "channels", "noise_is_refused", HANDSHAKE),
    Fuzzed("NBD", "nbd", "integration", "robustness::damage_is_survived", DIALOGUE),
    Fuzzed("NBD", "nbd", "integration", "robustness::any_bytes_are_survived"),
    Fuzzed("NBD with TLS", "nbd", "integration", "starttls::without_tls_there_is_nothing"),
    Fuzzed("iSCSI", "iscsi", "integration", "pdu::any_bytes_are_survived"),
    Fuzzed("iSCSI", "iscsi", "integration", "login::any_login_is_survived"),
    Fuzzed("iSCSI", "iscsi", "azekura_iscsi", "no_value_does_harm"),
    Fuzzed("NVMe/TCP", "nvme", "integration", "pdu::any_bytes_are_survived"),
    Fuzzed("NVMe/TCP", "nvme", "integration", "pdu::any_beginning_is_survived"),
    Fuzzed("NVMe/TCP", "nvme", "integration", "command::any_entry_is_survived"),
    Fuzzed("NVMe/TCP", "nvme", "integration", "command::any_connect_data_is_survived"),
    Fuzzed("NVMe/TCP", "nvme", "azekura_nvme", "any_bytes_are_a_message_or_not"),
    Fuzzed("NVMe/TCP", "nvme", "azekura_nvme", "nobody_is_let_in_by_chance"),
    Fuzzed("vhost-user", "vhost", "azekura_vhost", "any_messages", DIALOGUE),
    Fuzzed(
        "vhost-user",
        "vhost",
        "azekura_vhost",
        "no_request_without_the_volume_and_no_page_without_its_bit",
        DIALOGUE,
    ),
    Fuzzed("vhost-user", "vhost", "azekura_vhost", "any_bytes_are_a_message_or_a_breach"),
    Fuzzed("data port", "wire", "frames", "hostile_bytes_never_panic"),
    Fuzzed("data port", "wire", "greetings", "greetings_of_other_versions_say_who_speaks"),
    Fuzzed("API: tokens", "base", "azekura_base", "any_text_is_survived"),
    Fuzzed("secrets of hosts", "base", "azekura_base", "any_bytes_are_a_secret_or_not"),
]
