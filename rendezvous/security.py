"""See `credentials`, `join_string` and `macs`."""

from __future__ import annotations

from rendezvous.credentials import SERVER_NAME as SERVER_NAME
from rendezvous.credentials import Credential as Credential
from rendezvous.credentials import CredentialKind as CredentialKind
from rendezvous.credentials import RunKeys as RunKeys
from rendezvous.credentials import base64url as base64url
from rendezvous.credentials import from_base64url as from_base64url
from rendezvous.credentials import hkdf as hkdf
from rendezvous.credentials import new_secret as new_secret
from rendezvous.credentials import node_credential as node_credential
from rendezvous.credentials import parse_credential as parse_credential
from rendezvous.credentials import registry_credential as registry_credential
from rendezvous.join_string import JoinString as JoinString
from rendezvous.join_string import RegistryPlace as RegistryPlace
from rendezvous.join_string import RegistryString as RegistryString
from rendezvous.join_string import Trust as Trust
from rendezvous.join_string import group_token_text as group_token_text
from rendezvous.join_string import parse_group_token as parse_group_token
from rendezvous.join_string import without_secrets as without_secrets
from rendezvous.macs import command_mac as command_mac
from rendezvous.macs import is_command_mac as is_command_mac
from rendezvous.macs import row_is_genuine as row_is_genuine
from rendezvous.macs import row_mac as row_mac
from rendezvous.macs import sign_join as sign_join
from rendezvous.macs import word_macs as word_macs
