"""The clients of Azure Storage, imported in one place."""

from __future__ import annotations

from grete.errors import MissingExtra

try:
    from azure.core import MatchConditions as MatchConditions
    from azure.core.credentials import AzureNamedKeyCredential as AzureNamedKeyCredential
    from azure.core.credentials import AzureSasCredential as AzureSasCredential
    from azure.core.credentials import TokenCredential as TokenCredential
    from azure.core.exceptions import AzureError as AzureError
    from azure.core.exceptions import ClientAuthenticationError as ClientAuthenticationError
    from azure.core.exceptions import HttpResponseError as HttpResponseError
    from azure.data.tables import TableClient as TableClient
    from azure.data.tables import TableServiceClient as TableServiceClient
    from azure.data.tables import UpdateMode as UpdateMode
    from azure.storage.blob import BlobClient as BlobClient
    from azure.storage.blob import BlobLeaseClient as BlobLeaseClient
    from azure.storage.blob import BlobProperties as BlobProperties
    from azure.storage.blob import BlobServiceClient as BlobServiceClient
    from azure.storage.blob import ContainerClient as ContainerClient
except ImportError as error:
    raise MissingExtra("azure-storage-blob and azure-data-tables", "azure") from error
