// Lets a program that imports TodokuClient alone name every type that its calls take, return and throw. The other types of DownloadModel
// (records, rows and rules of the service) stay out of the program's name space.

@_exported public import struct DownloadModel.AssetKey
@_exported public import enum DownloadModel.AssetUpdatePolicy
@_exported public import enum DownloadModel.BadgeContent
@_exported public import typealias DownloadModel.ByteCount
@_exported public import struct DownloadModel.Checksum
@_exported public import struct DownloadModel.Cookie
@_exported public import struct DownloadModel.DesktopID
@_exported public import enum DownloadModel.DiskReserve
@_exported public import struct DownloadModel.DownloadOptions
@_exported public import enum DownloadModel.ErrorName
@_exported public import enum DownloadModel.ExistingFilePolicy
@_exported public import enum DownloadModel.ExtractionFolder
@_exported public import struct DownloadModel.HeaderField
@_exported public import struct DownloadModel.HostRule
@_exported public import enum DownloadModel.Language
@_exported public import enum DownloadModel.NotifyPolicy
@_exported public import struct DownloadModel.OutcomeCounts
@_exported public import struct DownloadModel.PieceHashes
@_exported public import struct DownloadModel.ProxyAddress
@_exported public import struct DownloadModel.Refusal
@_exported public import struct DownloadModel.SlowedHost
@_exported public import typealias DownloadModel.Speed
@_exported public import enum DownloadModel.WaitReason
@_exported public import struct DownloadModel.WallTime
